"""`parley completion`: complete command lines in bash, zsh and fish.

The scripts are thin: they pass the words of the command line to `parley completion words`, which prints one candidate
per line with a tab and its description. The line `:files` or `:dirs` stands for the files or directories of the shell.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from parley.cli.commands.catalog import BY_NAME, COMMANDS, Action, Flag
from parley.cli.commands.subcommand import GivenArgs, open_launch, write_lines
from parley.errors import SessionError, UsageError
from parley.protocol.options import ROWS, is_flag
from parley.settings.base import printable

BASH = """\
# Completion of parley for bash: source <(parley completion bash)
_parley() {
    local words=() word value
    for word in "${COMP_WORDS[@]:1:COMP_CWORD}"; do
        [[ $word == "=" ]] || words+=("$word")
    done
    word=${COMP_WORDS[COMP_CWORD]}
    if [[ $word == "=" ]]; then
        word=
        words+=("")
    fi
    COMPREPLY=()
    while IFS=$'\\t' read -r value _; do
        case $value in
        :files | :dirs)
            compopt -o filenames 2>/dev/null
            while IFS= read -r value; do
                COMPREPLY+=("$value")
            done < <(compgen -A "$([[ $value == :dirs ]] && echo directory || echo file)" -- "$word")
            ;;
        ?*)
            [[ $word == [\\"\\']* ]] || printf -v value %q "$value"
            COMPREPLY+=("$value")
            ;;
        esac
    done < <("${COMP_WORDS[0]}" completion words -- "${words[@]}" 2>/dev/null)
}
complete -F _parley parley
"""
ZSH = """\
#compdef parley
# Completion of parley for zsh, after compinit: source <(parley completion zsh)
_parley() {
    local line
    local -a candidates
    for line in "${(@f)$("${words[1]}" completion words -- "${(@Q)words[2,CURRENT]}" 2>/dev/null)}"; do
        case $line in
        :files) _files ;;
        :dirs) _files -/ ;;
        ?*) candidates+=("${${line%%$'\\t'*}//:/\\\\:}:${line#*$'\\t'}") ;;
        esac
    done
    (( $#candidates )) && _describe -V 'parley' candidates
}
if [[ $funcstack[1] == _parley ]]; then
    _parley
else
    compdef _parley parley
fi
"""
FISH = """\
# Completion of parley for fish: parley completion fish | source
function __parley_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    test (count $current) -gt 0; or set current ''
    for line in ($words[1] completion words -- $words[2..-1] $current 2>/dev/null)
        switch $line
            case :files
                __fish_complete_path $current
            case :dirs
                __fish_complete_directories $current
            case '*'
                echo $line
        end
    end
end
complete -c parley -f -a '(__parley_complete)'
"""
SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}
FILES, DIRECTORIES = ":files", ":dirs"
MAX_SESSIONS = 50


SWITCH = Flag("", "")


def write_script(given: GivenArgs) -> int:
    return write_lines([SCRIPTS[given.action].rstrip()])


def write_words(given: GivenArgs) -> int:
    return write_lines(complete(given.words))


def complete(words: Sequence[str]) -> Iterator[str]:
    """The candidates for the last word of a command line."""
    *before, current = words or [""]
    current = re.sub(r"\\(.)", r"\1", current.lstrip("'\""))  # bash and fish pass the word as it is typed
    for line in find_candidates(before, current):
        value = line.partition("\t")[0]
        if value in (FILES, DIRECTORIES) or value.startswith(current):
            yield line


def find_candidates(before: Sequence[str], current: str) -> Iterable[str]:
    words = before[1:] if before[:1] == ["help"] and len(before) == 2 else before  # its second word is an action
    command = BY_NAME.get(words[0]) if words else None
    if command is None:
        return complete_action(Action("", "" if before else "COMMAND", takes_options=True), before, current)
    if command.single is not None:
        return complete_action(command.single, words[1:], current)
    if len(words) == 1:
        return [*(f"{name}\t{action.help}" for name, action in command.actions.items()), "--help\tShow the help."]
    if words[1] not in command.actions:
        return []
    return complete_action(command.actions[words[1]], words[2:], current)


def complete_action(action: Action, before: Sequence[str], current: str) -> Iterable[str]:
    # The flags that an action takes, by each of their names.
    options = [
        Flag(" ".join(row.flags), row.help, row.metavar or row.kind.metavar, row.kind.choices, words=row.kind.words)
        for row in (ROWS if action.takes_options else ())
    ]
    found: dict[str, Flag] = {}
    for flag in (*action.flags, *options):
        for name in flag.names.split():
            found.setdefault(name, flag)  # its own hide the options of a session
    flags = found | {"--help": Flag("--help", "Show the help.")}
    name, is_joined, _ = current.partition("=")
    if is_joined and name in flags:
        return [f"{name}={line}" for line in list_values(flags[name]) if line not in (FILES, DIRECTORIES)]
    arguments, flag, is_value = 0, SWITCH, False  # before the word, that may take it as a value, and whether it must
    for word in before:
        if is_flag(word):
            given, has_value, _ = word.partition("=")
            flag = SWITCH if has_value else flags.get(given, SWITCH)
            is_value = flag.count in ("one", "many")
        else:
            arguments += flag.count == "none"
            flag, is_value = flag if flag.count == "many" else SWITCH, False
    if is_value or (flag.count != "none" and not current.startswith("-")):
        return list_values(flag)
    if current.startswith("-"):
        return [f"{name}\t{flag.help}" for name, flag in flags.items()]
    names = [word.strip("[]") for word in action.arguments.split() if word != "..."]
    if not names or (action.most is not None and arguments >= len(names)):
        return []
    return list_values(Flag("", "", names[min(arguments, len(names) - 1)]))


def list_values(flag: Flag) -> Iterator[str]:
    """The candidates for a value, by what the help calls it."""
    yield from flag.choices
    for part in flag.value.split("|"):
        yield from SOURCES.get(part, list)()


def list_commands() -> list[str]:
    return [f"{name}\t{command.help}" for name, command in COMMANDS.items()]


def list_tools() -> Sequence[str]:
    from parley.tools.catalog import BUILT_IN

    return BUILT_IN


def list_models() -> Sequence[str]:
    from parley.models.catalog import ALIASES, OFFLINE, OPUSPLAN

    return (*ALIASES, OPUSPLAN, OFFLINE)


def list_sessions() -> Iterator[str]:
    """The sessions of this directory: short ids with their titles, then the titles."""
    from parley.cli.commands.sessions import shorten
    from parley.compose.stores import SessionStores

    try:
        launch = open_launch()
        found = SessionStores(launch).store().list(launch.cwd, MAX_SESSIONS)
    except (UsageError, SessionError):
        return
    ids = shorten([info.id for info in found])
    for id, info in zip(ids, found, strict=True):
        yield f"{id}\t{printable(info.shown_title)}"
    for id, info in zip(ids, found, strict=True):
        if info.title and printable(info.title) == info.title:
            yield f"{info.title}\t{id}"


SOURCES: dict[str, Callable[[], Iterable[str]]] = {
    **{word: partial(list, [word]) for word in ("on", "off", "true", "false", "claude", "miriad-code")},
    **dict.fromkeys(("FILE", "PATH", "SOURCE"), partial(list, [FILES])),
    **dict.fromkeys(("DIR", "FOLDER"), partial(list, [DIRECTORIES])),
    **dict.fromkeys(("MODEL", "MODELS"), list_models),
    **dict.fromkeys(("TOOL", "RULE"), list_tools),
    "COMMAND": list_commands,
    "SESSION": list_sessions,
}
"""The candidates for each word by which the help calls a value."""
