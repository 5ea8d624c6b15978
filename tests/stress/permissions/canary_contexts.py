"""The first generator of the canary: contexts around payloads, most of which must not be allowed."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

# Contexts of a payload; `@` is its position.
CONTEXTS = (
    "printf '%d' @", "printf '%5.2f %q' @ 1", "type @", "command -v @", "sleep @", "seq @", "head -c @ a.txt", "id @",
    "@", "echo @", "ls @", "cat @", "grep @ a.txt", "git log @", "git status @", ": @", "true @", "echo a @ b",
    "echo @ b", 'echo "@"', "echo '@'", 'echo "a @ b"', "echo a@", "echo @b", "echo \"a\"@", "echo 'a'@'b'",
    "echo \\@", "echo a\\@", 'echo "\\@"', "echo '\\@'", "ls;@", "ls; @", "ls ;@;", "ls&&@", "ls && @", "ls || @",
    "ls | @", "ls |& @", "ls & @", "ls\n@", "ls\n\n @", "@;ls", "@ && ls", "@ | cat", "@\nls", "@ & ls", "ls > @",
    "ls >> @", "ls 2> @", "ls < @", "ls <@", "cat <<< @", "cat <<E\n@\nE", "cat <<'E'\n@\nE", "cat <<-E\n\t@\n\tE",
    "ls 2>&1 @", "ls >/dev/null @", "ls > /dev/null; @", "@ > /dev/null", "2>&1 @", "</dev/null @", "A=@ ls",
    "LANG=@ ls", "LC_ALL=C @", "NO_COLOR=1 @", "NO_COLOR=@ ls", "TZ=@ date", "time @", "time -p @", "timeout 5 @",
    "nice @", "nice -n 5 @", "nohup @", "command @", "builtin @", "stdbuf -oL @", "ls | xargs @", "env @", "cd @",
    "cd . && @", "printf @", "printf '%s' @", "find . -name @", "find @", "sort @", "head -n @ a.txt",
    "head -@ a.txt", "sed -n @ a.txt", "sed -n 1p @", "jq @", "date @", "date +@", "ls # @", "ls #\n@", "echo a#@",
    "(@)", "{ @; }", "! @", "if true; then @; fi", "echo {a,@}", "echo ~@", "echo a~@", "echo a=@", "echo --x=@",
    "git -c @ log", "echo ''@", 'echo ""@', "echo $@", "echo *@", "echo [@]", "echo ?@", "ls \\\n@", "ls \t@", "\t@",
    " @", "@ ", "echo a;@", "echo 'a\n@\nb'", 'echo "a\n@\nb"', "grep -e @ -r .", "cat -- @", "ls -@", "ls --@",
    "git show HEAD:@", "echo a,@", "wc -l @", "cut -d @ -f1 a.txt", "tr @ x", "true && @ && true", "false || @",
    "git commit -m \"$(cat <<'EOF'\n@\nEOF\n)\"", "echo \"$(cat <<'EOF'\nEOF @\nEOF\n)\"; ls", "[ -f @ ]", "test -f @",
    "echo \"$(cat <<'EOF'\nx\nEOF\n@)\"", "echo \"$(cat <<'@'\nx\n@\n)\"", "[ @ ] && ls", "ls; echo $?@",
    "echo \"a $? @\"", "echo $?; @", "echo \"$(cat <<'EOF'\nx'@\nEOF\n)\" 'y'", "ls \"$(cat <<'EOF'\n@\nEOF\n  )\"@",
    ": ; @", "echo é'@'", "echo 'é'@", "echo '@'é",
    "cat <<'EOF'\nx\nEOF\n@", "cat <<'EOF' @\nx\nEOF", "@ <<'EOF'\nx\nEOF", "cat <<'EOF' | @\nx\nEOF",
    "cat <<\"EOF\"\n@\nEOF\nls", "cat <<'EOF' > /dev/null\n@\nEOF\n@", "cat <<'@'\nx\n@", "cat <<'EOF' && ls\n@\nEOF",
    "wc -l <<'EOF'\nEOF@\n@EOF\nEOF", "cat << 'EOF'\n@\n EOF\nEOF ", "cat <<'E'x\n@\nE\n", "cat <<'E' 2>&1\n@\nE\n",
    "ls; cat <<'EOF'\n@\nEOF\ncat <<'EOF'\n@\nEOF", "cat <<'EOF' \"@\"\nx\nEOF", "cat <<'A' <<'B'\n@\nA\n@\nB",
    "cat <<'EOF' # @\nx\nEOF", "cat <<'EOF' |\n@\nEOF\nwc -l", "cat <<'EOF' \\\n@\nEOF\nEOF", "cat 3<<'EOF'\n@\nEOF",
    "cat <<'EOF'\nEOF\n@", "cat <<'EOF'\n\\\nEOF\n@\nEOF", "cat <<'EOF'; cat <<'EOF'\n@\nEOF\n@\nEOF",
    "cat <<''\n@\n\n@", "ls 1234>/dev/null @", "head -n 12345>/dev/null @", "cat 1234<<'E' @\nx\nE",
    "cat <<'EOF' < a.txt\n@\nEOF", "cat <<-'EOF'\n\t@\n\tEOF\n@", "grep @ <<'EOF'\n@\nEOF",
    "cat <<'EOF'\n'@\nEOF\nls '@",
    "echo ~/@", "cat ~/@", "ls ~@", "ls ~ @", "ls ~;@", "cat < ~/@", "cat <~/@", "echo a:~/@", "echo a=~/@", "ls '~/@'",
    "HOME=@ ls ~/x", "cd ~ && @", "echo ~/\"@\"", "grep -f ~/@ a.txt", "echo ~\"/@\"", "echo ~\\/@", "ls ''~/@",
    "ls ~+/@",
    "ls ~-@", "ls --x=~/@", "ls ~/a~/@", "ls ~/'@'", "ls @ ~/x", "cat ~/x | @", "ls ~/x && @", "command -v ~/@",
)  # fmt: skip

PAYLOADS = (
    "'a[$(canary)]'", "-v 'a[$(canary)]' 1", "'a[`canary`]=1'", "'${x:-$(canary)}'", "'$((a[$(canary)]))'",
    "canary", "$(canary)", "`canary`", "${x:-$(canary)}", "${x:=`canary`}", "<(canary)", ">(canary)", "; canary",
    ";canary", "&& canary", "|| canary", "| canary", "|canary", "& canary", "\ncanary", "\n canary\n", "|& canary",
    "$((a[$(canary)]))", "$[a[$(canary)]]", "a[$(canary)]", "-v a[$(canary)]", "'$(canary)'", '"$(canary)"',
    "$'\\x63anary'", "\\$(canary)", "\\`canary\\`", "\\;canary", "\\|canary", "'; canary; '", '"; canary; "',
    "';canary'", "\\'; canary #'", '\\"; canary #"', "{canary,}", "#\ncanary", "'#'\ncanary", "\\\ncanary",
    "\\\n;canary", "=canary", "~canary", "!canary", "! canary", ">x canary", "2>&1 canary", "\rcanary", "\x0bcanary",
    "\u00a0canary", "\u2028canary", "x'\ncanary\n'", 'x"\ncanary\n"', "a.txt", "*.txt", "-la", "src", "x y", "'a b'",
    '"a b"', "a\\ b", "a|b", "'a|b'", '"a;b"', "'a\nb'", "HEAD~1", "a=b", "1,5p", "'1,5p'", "%s", "'%n' PATH; canary",
    "-n", "-exec canary ;", "ls", "ls -a", "echo canary", "git status", "-o canary", "--pre=canary", "$", '"a$"',
    '"a$ b"', '"$|canary"', "canary()", "canary() ls", "time canary", "coproc canary", "eval canary",
    "command canary", "exec canary", "e\\xec canary", "> canary", ">|x", "</dev/tcp/127.0.0.1/1", "~", "~+", "~-",
    "@{1}", "a{b", "}", "]", "[", "^", "^canary^x", "!!", "!$", "%1", "+", "--", "-", "''", '""', "\\a", "\\*",
    "\\\\", "\\\\;canary", "'\\';canary", '"\\\\";canary', '"\\"";canary', "a'b'c", "é", "'é'", "\t", "  ", "\n",
    "a\tb", "0", "5", "9>&1", "1>&2", ">&2", ">&-", "<&0", "&>/dev/null", "& >x", "&>>x",
)  # fmt: skip


def commands(random: Random) -> Iterator[str]:
    """An endless stream: a payload in a context, perhaps nested, perhaps two in a row."""
    while True:
        text = random.choice(CONTEXTS).replace("@", random.choice(PAYLOADS))
        for _ in range(random.choice((0, 0, 0, 1, 1, 2))):
            text = random.choice(CONTEXTS).replace("@", text)
        if random.random() < 0.15:
            text += random.choice((" ", "", ";", "\n", "&&", "|")) + random.choice(PAYLOADS)
        yield text
