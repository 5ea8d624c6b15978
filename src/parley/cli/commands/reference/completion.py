"""`parley completion`: complete command lines in bash, zsh and fish.

The scripts are thin: they pass the words of the command line to `parley completion words`, which prints one candidate
per line with a tab and its description. The line `:files` or `:dirs` stands for the files or directories of the shell.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from parley.cli.commands.catalog import BY_NAME, COMMANDS, Action
from parley.cli.commands.subcommand import GivenArgs, run_command, write_lines
from parley.errors import SessionError, UsageError
from parley.protocol.base import Struct
from parley.protocol.options import ROWS, is_flag

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
        ?*) COMPREPLY+=("$value") ;;
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
FILES, DIRECTORIES = ":files", ":dirs"
MAX_SESSIONS = 50


class Values(Struct, frozen=True):
    """What a flag takes."""

    count: str
    """How many words: "none", "one", "maybe" or "many"."""
    metavar: str = ""
    choices: tuple[str, ...] = ()


def main(argv: list[str]) -> int:
    """Raises UsageError."""
    scripts = {"bash": BASH, "zsh": ZSH, "fish": FISH}
    handlers = {shell: lambda given, text=text: write_lines([text.rstrip()]) for shell, text in scripts.items()}
    return run_command(COMMANDS["completion"], argv, {**handlers, "words": write_words})


def write_words(given: GivenArgs) -> int:
    return write_lines(complete(given.words))


def complete(words: Sequence[str]) -> Iterator[str]:
    """The candidates for the last word of a command line."""
    *before, current = words or [""]
    for line in find_candidates(before, current):
        value = line.partition("\t")[0]
        if value in (FILES, DIRECTORIES) or value.startswith(current):
            yield line


def find_candidates(before: Sequence[str], current: str) -> Iterator[str]:
    command = BY_NAME.get(before[0]) if before else None
    if command is None:
        action = Action("", "PROMPT" if before else "COMMAND", takes_options=True)
        yield from complete_action(action, before, current)
    elif command.single is not None:
        yield from complete_action(command.single, before[1:], current)
    elif len(before) == 1:
        yield from (f"{name}\t{action.help}" for name, action in command.actions.items())
        yield "--help\tShow the help of this command."
    elif before[1] in command.actions:
        yield from complete_action(command.actions[before[1]], before[2:], current)


def complete_action(action: Action, before: Sequence[str], current: str) -> Iterator[str]:
    flags = list_flags(action)
    name, is_joined, _ = current.partition("=")
    if is_joined and name in flags:
        values = flags[name][0]
        yield from (f"{name}={line}" for line in complete_value(values.metavar, values.choices) if line[0] != ":")
        return
    arguments, is_open, taken = 0, None, 0
    for word in before:
        if is_flag(word):
            flag, is_joined, _ = word.partition("=")
            is_open = None if is_joined else flags.get(flag, (None, ""))[0]
            taken = 0
        elif is_open is not None and (is_open.count == "many" or (is_open.count in ("one", "maybe") and not taken)):
            taken += 1
        else:
            arguments += 1
    if is_open is not None and is_open.count != "none" and (not taken or is_open.count == "many"):
        is_needed = is_open.count != "maybe" and not taken
        if is_needed or not current.startswith("-"):
            yield from complete_value(is_open.metavar, is_open.choices)
            return
    if current.startswith("-"):
        yield from (f"{flag}\t{help}" for flag, (_, help) in flags.items())
        return
    names = [word.strip("[]") for word in action.arguments.split()]
    if names and (arguments < len(names) or names[-1] == "..."):
        names = [name for name in names if name != "..."]
        yield from complete_value(names[min(arguments, len(names) - 1)])


def list_flags(action: Action) -> dict[str, tuple[Values, str]]:
    """The flags that an action takes, with their help."""
    found = {
        name: (Values("one" if flag.metavar else "none", flag.value, flag.choices), flag.help)
        for flag in action.flags
        for name in flag.names.split()
    }
    if action.takes_options:
        for row in ROWS:
            metavar = row.flags[0] if row.field in ("model", "fallback_model") else row.metavar or row.kind.metavar
            values = Values(row.kind.words, metavar, row.kind.choices)
            found |= {name: (values, row.help) for name in row.flags if name not in found}
    return found | {"--help": (Values("none"), "Show the help.")}


def complete_value(metavar: str, choices: tuple[str, ...] = ()) -> Iterator[str]:
    """The candidates for a value, by what the help calls it."""
    yield from choices
    for part in metavar.split("|"):
        if part in ("on", "off", "true", "false"):
            yield part
        elif part in ("FILE", "PATH", "SOURCE"):
            yield FILES
        elif part in ("DIR", "FOLDER"):
            yield DIRECTORIES
        elif part == "SESSION":
            yield from list_sessions()
        elif part == "COMMAND":
            yield from (f"{name}\t{command.help}" for name, command in COMMANDS.items())
        elif part in ("TOOL", "RULE"):
            from parley.tools.catalog import BUILT_IN

            yield from BUILT_IN
        elif part in ("--model", "--fallback-model"):
            from parley.models.catalog import ALIASES, OFFLINE

            yield from (*ALIASES, OFFLINE)


def list_sessions() -> Iterator[str]:
    """The sessions of this directory: the id and the title."""
    from parley.cli.commands.launch import open_launch
    from parley.compose.stores import SessionStores
    from parley.settings.base import printable

    try:
        launch = open_launch()
        found = SessionStores(launch).store().list(launch.cwd, MAX_SESSIONS)
    except (UsageError, SessionError):
        return
    for info in found:
        yield f"{info.id}\t{printable(info.title or info.first_prompt or '')}"
