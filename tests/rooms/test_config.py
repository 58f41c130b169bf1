from __future__ import annotations

import os
from dataclasses import dataclass, fields
from pathlib import Path

import pytest

from perdure.config import MODES, Loaded, Secret, Settings, load, masked_url
from perdure.errors import ConfigError


@dataclass
class Place:
    """A machine to find settings on: a user's folder with a project in it."""

    user: Path

    @property
    def project(self) -> Path:
        return self.user / "code"

    @property
    def user_file(self) -> Path:
        return self.user / ".config" / "perdure" / "config.toml"

    @property
    def project_file(self) -> Path:
        return self.project / ".perdure" / "config.toml"

    def user_says(self, text: str) -> None:
        write(self.user_file, text)

    def project_says(self, text: str) -> None:
        write(self.project_file, text)

    def loaded(self, flags: dict[str, str] | None = None, platform: str = "linux", **environ: str) -> Loaded:
        return load(
            flags=flags or {},
            environ={"HOME": str(self.user)} | environ,
            folder=self.project,
            platform=platform,
        )

    def settings(self, flags: dict[str, str] | None = None, **environ: str) -> Settings:
        return self.loaded(flags, **environ).settings


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(tmp_path / "ada")
    place.project.mkdir(parents=True)
    return place


# What holds when nobody says anything.


def test_the_defaults_are_the_promised_ones(place: Place) -> None:
    home = place.user / ".local" / "share" / "perdure"
    assert place.settings() == Settings(
        workspace=place.project,
        home=home,
        database_url=f"sqlite:///{home}/perdure.db",
        durability="power",
        model=None,
        mode="workspace-write",
        retry_attempts=5,
        retry_base=0.5,
        retry_cap=30.0,
        context_strategy="compact",
        compaction_share=0.75,
        compaction_window_if_unknown=100_000,
        compaction_keep=4,
        truncation_keep=20,
        max_session_age_hours=None,
        on_crash=None,
        shutdown_deadline=8.0,
        child_depth=3,
        token=None,
        providers={},
    )


def test_every_setting_has_an_origin(place: Place) -> None:
    assert place.loaded().origins == {key.name: "default" for key in fields(Settings)}


def test_on_a_mac_files_lie_in_application_support(place: Place) -> None:
    found = place.loaded(platform="darwin")
    folder = place.user / "Library" / "Application Support" / "perdure"
    assert found.settings.home == folder
    assert found.user_file == folder / "config.toml"


def test_the_xdg_folders_count(place: Place, tmp_path: Path) -> None:
    write(tmp_path / "conf" / "perdure" / "config.toml", "retry_attempts = 7")
    found = place.loaded(XDG_CONFIG_HOME=str(tmp_path / "conf"), XDG_DATA_HOME=str(tmp_path / "data"))
    assert found.settings.retry_attempts == 7
    assert found.settings.home == tmp_path / "data" / "perdure"


def test_a_relative_xdg_folder_is_ignored(place: Place) -> None:
    assert place.settings(XDG_DATA_HOME="data") == place.settings()


# Who wins.


def test_the_user_comes_before_the_default(place: Place) -> None:
    place.user_says("\nretry_attempts = 2")
    found = place.loaded()
    assert found.settings.retry_attempts == 2
    assert found.origins["retry_attempts"] == f"{place.user_file}:2"


def test_the_project_comes_before_the_user(place: Place) -> None:
    place.user_says("retry_attempts = 2")
    place.project_says("# ours\nretry_attempts = 3")
    found = place.loaded()
    assert found.settings.retry_attempts == 3
    assert found.origins["retry_attempts"] == f"{place.project_file}:2"


def test_the_environment_comes_before_the_project(place: Place) -> None:
    place.project_says("retry_attempts = 3")
    found = place.loaded(PERDURE_RETRY_ATTEMPTS="4")
    assert found.settings.retry_attempts == 4
    assert found.origins["retry_attempts"] == "PERDURE_RETRY_ATTEMPTS"


def test_the_command_line_comes_before_the_environment(place: Place) -> None:
    found = place.loaded({"home": "/flag"}, PERDURE_HOME="/variable")
    assert found.settings.home == Path("/flag")
    assert found.origins["home"] == "--home"


def test_the_store_lies_in_the_home_that_was_chosen(place: Place) -> None:
    assert place.settings(PERDURE_HOME="/somewhere").database_url == "sqlite:////somewhere/perdure.db"


def test_the_projects_file_is_looked_for_in_the_workspace(place: Place, tmp_path: Path) -> None:
    write(tmp_path / "other" / ".perdure" / "config.toml", "retry_attempts = 9")
    for found in (
        place.loaded({"workspace": str(tmp_path / "other")}),
        place.loaded(PERDURE_WORKSPACE=str(tmp_path / "other")),
    ):
        assert found.settings.workspace == tmp_path / "other"
        assert found.settings.retry_attempts == 9


def test_a_user_may_name_the_workspace(place: Place, tmp_path: Path) -> None:
    write(tmp_path / "other" / ".perdure" / "config.toml", "retry_attempts = 9")
    place.user_says(f'workspace = "{tmp_path}/other"')
    assert place.settings().retry_attempts == 9


# How values are said.


def test_every_setting_can_be_said_in_the_environment(place: Place) -> None:
    said = {
        "WORKSPACE": str(place.user),
        "HOME": "/h",
        "DATABASE_URL": "postgresql://db/perdure",
        "DURABILITY": "process",
        "MODEL": "openai:gpt-x",
        "MODE": "read-only",
        "RETRY_ATTEMPTS": "1",
        "RETRY_BASE": "0.25",
        "RETRY_CAP": "60",
        "CONTEXT_STRATEGY": "truncate",
        "COMPACTION_SHARE": "0.5",
        "COMPACTION_WINDOW_IF_UNKNOWN": "8000",
        "COMPACTION_KEEP": "6",
        "TRUNCATION_KEEP": "10",
        "MAX_SESSION_AGE_HOURS": "720",
        "ON_CRASH": "continue",
        "SHUTDOWN_DEADLINE": "3",
        "CHILD_DEPTH": "0",
        "TOKEN": "abc",
    }
    assert {name.lower() for name in said} == {key.name for key in fields(Settings)} - {"providers"}
    assert place.settings(**{f"PERDURE_{name}": value for name, value in said.items()}) == Settings(
        workspace=place.user,
        home=Path("/h"),
        database_url="postgresql://db/perdure",
        durability="process",
        model="openai:gpt-x",
        mode="read-only",
        retry_attempts=1,
        retry_base=0.25,
        retry_cap=60.0,
        context_strategy="truncate",
        compaction_share=0.5,
        compaction_window_if_unknown=8000,
        compaction_keep=6,
        truncation_keep=10,
        max_session_age_hours=720.0,
        on_crash="continue",
        shutdown_deadline=3.0,
        child_depth=0,
        token=Secret("abc"),
    )


def test_an_empty_variable_says_nothing(place: Place) -> None:
    assert place.settings(PERDURE_MODEL="", PERDURE_HOME="") == place.settings()


def test_a_tilde_is_the_users_folder(place: Place) -> None:
    place.user_says('home = "~/kept"\ndatabase_url = "sqlite:///~/db/one.db"')
    assert place.settings().home == place.user / "kept"
    assert place.settings().database_url == f"sqlite:///{place.user}/db/one.db"


def test_a_relative_path_in_a_file_starts_from_the_file(place: Place) -> None:
    place.user_says('home = "kept"')
    assert place.settings().home == place.user_file.parent / "kept"


@pytest.mark.parametrize("said", ["x.db", "./x.db", "sub/../x.db"])
def test_a_relative_path_in_the_shell_starts_from_the_current_folder(place: Place, said: str) -> None:
    assert (
        place.settings({"database_url": f"sqlite:///{said}"}).database_url
        == f"sqlite:///{place.project}/x.db"
    )


def test_paths_may_hold_spaces_and_any_script(tmp_path: Path) -> None:
    place = Place(tmp_path / "Ада 한글 ✓ a%20b?c#d")
    place.project.mkdir(parents=True)
    place.user_says('home = "~/내 세션"')
    place.project_says('model = "openai:模型"')
    assert place.settings().home == place.user / "내 세션"
    assert place.settings().database_url == f"sqlite:///{place.user}/내 세션/perdure.db"
    assert place.settings().model == "openai:模型"


# What is refused, and where it says to look.


def refusal(place: Place, flags: dict[str, str] | None = None, **environ: str) -> str:
    with pytest.raises(ConfigError) as caught:
        place.loaded(flags, **environ)
    return str(caught.value)


def test_an_unknown_key_is_named_with_its_line_and_the_likely_word(place: Place) -> None:
    place.user_says("retry_attempts = 2\n\nretry_atempts = 3\n")
    assert refusal(place) == f"{place.user_file}:3: unknown key retry_atempts; did you mean retry_attempts?"


def test_an_unknown_table_is_refused(place: Place) -> None:
    place.project_says("[retry]\nattempts = 3\n")
    assert refusal(place) == f"{place.project_file}:1: unknown key retry"


def test_a_key_that_slid_below_a_table_is_explained(place: Place) -> None:
    place.user_says('[providers.openai]\nbase_url = "http://localhost/v1"\nretry_attempts = 3\n')
    assert refusal(place) == (
        f"{place.user_file}:3: unknown key providers.openai.retry_attempts here; it belongs above the first [table]"
    )


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ('retry_attempts = "5"', "retry_attempts must be a whole number from 1 to 100, not '5'"),
        ("retry_attempts = 5.0", "retry_attempts must be a whole number from 1 to 100, not 5.0"),
        ("retry_attempts = true", "retry_attempts must be a whole number from 1 to 100, not True"),
        ("retry_attempts = 0", "retry_attempts must be a whole number from 1 to 100, not 0"),
        ("retry_base = -1", "retry_base must be a number from 0 to 3,600, not -1"),
        ("retry_base = nan", "retry_base must be a number from 0 to 3,600, not nan"),
        ("retry_base = inf", "retry_base must be a number from 0 to 3,600, not inf"),
        (f"retry_base = 1{'0' * 400}", f"retry_base must be a number from 0 to 3,600, not 1{'0' * 400}"),
        ("compaction_share = 75", "compaction_share must be a number from 0.01 to 1, not 75"),
        ("max_session_age_hours = 0", "max_session_age_hours must be a number from 1 to 1,000,000, not 0"),
        ('durability = "none"', "durability must be one of power, process, not 'none'"),
        ("durability = ['power']", "durability must be one of power, process, not ['power']"),
        ("model = 5", "model must be text, and not empty"),
        ('model = ""', "model must be text, and not empty"),
        ("model = {}", "model must be text, and not empty"),
        ('home = "a\\u0000b"', "home must be text, and not empty"),
        ("token = 12345678", "token must be text, and not empty"),
        ('database_url = "mysql://h/x"', "database_url must be sqlite:///PATH, postgresql://... or memory:, not 'mysql://h/x'"),
        ('database_url = "sqlite:///"', "database_url must be sqlite:///PATH, postgresql://... or memory:, not 'sqlite:///'"),
        ("providers = 5", "providers are tables, such as [providers.openai]"),
        ("providers.openai = 5", "providers are tables, such as [providers.openai]"),
        ("[providers.openai]\napi_keys = 'k'", "unknown key providers.openai.api_keys; did you mean api_key?"),
        ("[providers.openai]\nbase_url = 'localhost'", "providers.openai.base_url must be an address that begins with http:// or https://"),
    ],
)  # fmt: skip
def test_a_bad_value_is_named_with_its_line(place: Place, said: str, why: str) -> None:
    place.user_says(f"# first\n{said}\n")
    line = 2 + said.count("\n")
    assert refusal(place) == f"{place.user_file}:{line}: {why}"


@pytest.mark.parametrize("said", ["five", "5.5", "-1", "nan", " "])
def test_a_bad_number_in_the_environment_names_the_variable(place: Place, said: str) -> None:
    assert refusal(place, PERDURE_RETRY_ATTEMPTS=said) == (
        f"PERDURE_RETRY_ATTEMPTS: retry_attempts must be a whole number from 1 to 100, not {said!r}"
    )


def test_a_bad_value_is_refused_even_where_a_nearer_one_replaces_it(place: Place) -> None:
    place.user_says("retry_attempts = -1")
    assert f"{place.user_file}:1" in refusal(place, PERDURE_RETRY_ATTEMPTS="4")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("retry_attempts = \n", 1),
        ("a = 1\nb = 2\nretry_attempts 5\n", 3),
        ("retry_attempts = 5\nretry_attempts = 6\n", 2),
        ('model = "x\n', 1),
        ('retry_cap = 9\nmodel = """x\n\n', 2),
        ("retry_cap = 9\n\n[providers\n", 3),
    ],
)
def test_a_syntax_error_is_named_with_its_line(place: Place, text: str, line: int) -> None:
    place.project_says(text)
    assert refusal(place).startswith(f"{place.project_file}:{line}: ")


def test_a_file_nested_beyond_reason_is_refused(place: Place) -> None:
    place.project_says("model = " + "[" * 50_000)
    assert refusal(place).startswith(f"{place.project_file}:1: ")


def test_a_file_that_is_not_utf8_is_refused_with_its_line(place: Place) -> None:
    place.user_says("")
    place.user_file.write_bytes(b"retry_attempts = 5\nmodel = '\xff'\n")
    assert refusal(place) == f"{place.user_file}:2: this is not UTF-8 text"


def test_a_folder_in_place_of_a_file_is_refused(place: Place) -> None:
    place.user_file.mkdir(parents=True)
    assert refusal(place).startswith(f"{place.user_file}: cannot be read: ")


def test_a_pipe_in_place_of_a_file_is_refused_and_not_waited_for(place: Place) -> None:
    place.project_file.parent.mkdir(exist_ok=True)
    os.mkfifo(place.project_file)
    assert refusal(place) == f"{place.project_file}: cannot be read: it is no ordinary file"


def test_a_mark_that_an_editor_put_before_the_first_line_is_no_part_of_it(place: Place) -> None:
    place.user_says("\ufeffretry_attempts = 7\n")
    assert place.loaded().settings.retry_attempts == 7
    place.user_says("\ufeffretry_attempts = 7\nmodel = 3\n")
    assert refusal(place).startswith(f"{place.user_file}:2: ")


def test_lines_are_counted_through_values_of_several_lines(place: Place) -> None:
    place.user_says('model = """a\n[b]\nretry_base = 1\n"""\r\n# [x]\r\n\r\nretry_cap = 99\r\n')
    found = place.loaded()
    assert found.settings.model == "a\n[b]\nretry_base = 1\n"
    assert (found.origins["model"], found.origins["retry_cap"]) == (
        f"{place.user_file}:1",
        f"{place.user_file}:7",
    )


def test_a_workspace_that_is_no_folder_is_refused(place: Place) -> None:
    assert (
        refusal(place, {"workspace": "gone"})
        == f"--workspace: the workspace {place.project}/gone is not a folder"
    )


def test_a_cap_below_its_base_is_refused(place: Place) -> None:
    place.user_says("retry_base = 40")
    assert refusal(place) == f"{place.user_file}:1: retry_base (40) is more than retry_cap (30)"
    place.user_says("")
    assert (
        refusal(place, PERDURE_RETRY_CAP="0.1")
        == "PERDURE_RETRY_CAP: retry_base (0.5) is more than retry_cap (0.1)"
    )


def test_a_variable_that_is_nearly_a_setting_is_refused(place: Place) -> None:
    assert (
        refusal(place, PERDURE_DATABSE_URL="x")
        == "PERDURE_DATABSE_URL: no such setting; did you mean PERDURE_DATABASE_URL?"
    )


def test_providers_cannot_be_said_in_a_variable(place: Place) -> None:
    assert refusal(place, PERDURE_PROVIDERS="openai") == (
        "PERDURE_PROVIDERS: providers are tables of the user's file, such as [providers.openai]"
    )
    assert place.loaded(PERDURE_PROVIDERS="").settings == place.settings()


def test_a_variable_of_others_is_let_pass_and_told(place: Place) -> None:
    found = place.loaded(
        PERDURE_PORT="tcp://10.0.0.1:8787", PERDURE_CALL="s:1", PERDURE_ROUNDS="full", PERDURER="1"
    )
    assert found.ignored == ("PERDURE_CALL", "PERDURE_PORT", "PERDURE_ROUNDS")
    assert found.settings == place.settings()


# A project arrives with a clone.


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ('database_url = "memory:"', "database_url"),
        ('token = "t"', "token"),
        ('home = "."', "home"),
        ('workspace = "/"', "workspace"),
        ('durability = "process"', "durability"),
        ("max_session_age_hours = 1", "max_session_age_hours"),
        ('on_crash = "retry"', "on_crash"),
        ("shutdown_deadline = 0", "shutdown_deadline"),
    ],
)
def test_a_project_file_cannot_set_what_is_the_users(place: Place, said: str, name: str) -> None:
    place.project_says(f"retry_cap = 20\n{said}\n")
    assert refusal(place) == (
        f"{place.project_file}:2: a project's file cannot set {name};"
        f" set it in {place.user_file} or as PERDURE_{name.upper()}"
    )


@pytest.mark.parametrize("said", ['api_key = "k"', 'base_url = "http://evil.example"'])
def test_a_project_file_cannot_say_where_a_key_goes(place: Place, said: str) -> None:
    place.project_says(f"[providers.openai]\n{said}\n")
    name = said.split()[0]
    assert refusal(place) == (
        f"{place.project_file}:2: a project's file cannot set providers.openai.{name}; set it in {place.user_file}"
    )


@pytest.mark.parametrize("own", [None, *MODES])
@pytest.mark.parametrize("asked", MODES)
def test_a_project_file_narrows_the_mode_but_never_widens_it(
    place: Place, own: str | None, asked: str
) -> None:
    if own:
        place.user_says(f'mode = "{own}"')
    place.project_says(f'mode = "{asked}"')
    own = own or "workspace-write"
    order = ("read-only", "prompt", "workspace-write", "allow", "danger-full-access")
    if order.index(asked) <= order.index(own):
        assert place.settings().mode == asked
    else:
        assert refusal(place) == (
            f"{place.project_file}:1: a project's file cannot widen the mode from {own} to {asked};"
            f" set it in {place.user_file} or as PERDURE_MODE"
        )


# Secrets.


def test_providers_have_keys_and_addresses(place: Place) -> None:
    place.user_says(
        '[providers]\n[providers.openai]\napi_key = "sk-1"\n[providers."my.own"]\nbase_url = "http://[::1]:1/v1"'
    )
    found = place.loaded()
    openai, own = found.settings.providers["openai"], found.settings.providers["my.own"]
    assert openai.api_key is not None
    assert (openai.api_key.value, openai.base_url) == ("sk-1", None)
    assert (own.api_key, own.base_url) == (None, "http://[::1]:1/v1")
    assert found.origins["providers.openai.api_key"] == f"{place.user_file}:3"


def test_no_secret_is_in_what_settings_print(place: Place) -> None:
    place.user_says(
        'token = "hush-token"\ndatabase_url = "postgresql://ada:hush-db@h/d"\n'
        '[providers.x]\napi_key = "hush-key"\nbase_url = "https://u:hush-url@h"'
    )
    found = place.loaded()
    assert "hush" not in f"{found!r} {found} {found.settings.token} {found.settings.providers!r}"


@pytest.mark.parametrize(
    "said",
    [
        'token = ["hush"]',
        'database_url = "mysql://ada:hush@h/d"',
        'database_url = "mysql://h/d?password=hush&x=1"',
        "[providers.x]\napi_key = {a = 'hush'}",
        "[providers.x]\nbase_url = 'ftp://a:hush@h'",
        'token = "hush\n',
    ],
)
def test_no_secret_is_in_an_error(place: Place, said: str) -> None:
    place.user_says(said)
    assert "hush" not in refusal(place)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("sqlite:////home/a:b@c/x.db", "sqlite:////home/a:b@c/x.db"),
        ("postgresql://h/d", "postgresql://h/d"),
        ("postgresql://ada@h:5432/d", "postgresql://ada@h:5432/d"),
        ("postgresql://ada:p@h/d", "postgresql://ada:********@h/d"),
        ("postgresql://ada:p@ss:w/rd@h/d", "postgresql://ada:********@h/d"),
        ("postgresql://:p@h/d", "postgresql://:********@h/d"),
        ("postgresql://h/d?user=a&password=p&sslpassword=q&x=1", "postgresql://h/d?user=a&password=********&sslpassword=********&x=1"),
    ],
)  # fmt: skip
def test_an_address_is_shown_without_its_password(url: str, shown: str) -> None:
    assert masked_url(url) == shown
