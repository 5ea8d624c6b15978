"""Every known way to run `rm` by another program is found where a rule denies it; everyday lines stay free.

The rows are from the manual pages of the programs that are usually installed, and from what else is known to run
other programs. In bypass mode a miss would run.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1]))

from tree import Tree  # shared by the tests on permissions: their folder must be on the path first

from parley.permissions.base import Allow, Deny, Request
from parley.permissions.decision import decide
from parley.permissions.rule import Rule, read_rule
from parley.permissions.rules import Rules


def verdict(command: str, *denied: str) -> str:
    read = [read_rule(text, "deny", "flag", "/w") for text in denied]
    rules = Rules(cwd="/w", rules=tuple(rule for rule in read if isinstance(rule, Rule)))
    decision = decide(Request(tool="Bash", input={"command": command}, cwd="/w"), rules, "bypassPermissions", Tree())
    return "allow" if isinstance(decision, Allow) else "deny" if isinstance(decision, Deny) else "ask"


FOUND = r"""
choom -n 0 rm x
choom -n 0 -- rm x
pkexec rm x
pkexec --user me rm x
ssh-agent rm x
ssh-agent -t 5 rm x
start-stop-daemon -S -x /bin/rm -- x
start-stop-daemon --start --exec /bin/rm -- x
start-stop-daemon --start --exec=/bin/rm
start-stop-daemon -S -a rm
tar -cf a.tar -I 'rm x' b
tar -I rm -cf a b
tar -cIrm -f a b
tar --use-compress-program rm -cf a b
tar --use-compress-program='rm x' -cf a b
tar --use-comp=rm -cf a b
tar -xf a --to-command 'rm x'
tar -xf a --to-command=rm
tar -cf a b --checkpoint=1 --checkpoint-action=exec='rm x'
tar -cf a b --checkpoint=1 --checkpoint-action 'exec=rm x'
tar -cf a b -F 'rm x'
tar --info-script=rm -cf a b
tar --rsh-command=rm -cf h:a b
tar --rmt-command rm -cf h:a b
cpio --rsh-command=rm -i
cmake -E env rm x
cmake -E env A=1 rm x
cmake -E time rm x
ctest --build-and-test a b --test-command rm x
compgen -C 'rm x' a
compgen -C rm a
compgen -W '$(rm x)' a
complete -C 'rm x' a
mapfile -C rm -c 1 a < f
mapfile -C 'rm x' -c 1 a < f
bind -x '"a": rm x'
PS4='$(rm x)' bash -xc ls
PS4='$(rm x)'; set -x; ls
PS4='`rm x`'; set -x; ls
export PS4='$(rm x)'; set -x; ls
env PS4='$(rm x)' bash -xc ls
declare PS4='$(rm x)'; set -x; ls
for a in b; do PS4='$(rm x)'; set -x; done
PROMPT_COMMAND='rm x' bash -i
PS0='$(rm x)' bash -i
PS1='$(rm x)' bash -i
export PROMPT_COMMAND='rm x'
GIT_EXTERNAL_DIFF='rm x' git diff
GIT_SSH_COMMAND='rm x' git fetch
GIT_PAGER='rm x' git log
GIT_SEQUENCE_EDITOR='rm x' git rebase -i HEAD~2
PAGER=rm man ls
LESSOPEN='|rm x' less a
SVN_SSH='rm x' svn update
RSYNC_RSH='rm x' rsync a h:b
SUDO_ASKPASS=/bin/rm sudo -A ls
TAR_OPTIONS='--to-command=rm' tar xf a
env 'BASH_FUNC_ls%%=() { rm x; }' bash -c ls
RUSTC_WRAPPER=rm cargo build
git filter-branch --tree-filter 'rm x'
git filter-branch --index-filter 'rm x' HEAD
git filter-branch --env-filter 'rm x'
git filter-branch -f --msg-filter rm
git rebase -x 'rm x' HEAD~2
git rebase --exec rm HEAD~2
git rebase --exec='rm x' HEAD~2
git bisect run rm x
git submodule foreach 'rm x'
git submodule foreach --recursive rm x
git -c alias.y='!rm x' y
git -c core.pager='rm x' log
git -c core.sshCommand='rm x' fetch
git -c diff.external='rm x' diff
git -c difftool.a.cmd='rm x' difftool -t a
git -c merge.a.driver='rm x' merge b
git -c pager.log='rm x' log
git -c interactive.diffFilter='rm x' add -p
git -c credential.helper='!rm x' fetch
git config alias.y '!rm x'
git config --global core.pager 'rm x'
git difftool -x 'rm x'
git difftool --extcmd='rm x'
git send-email --sendmail-cmd='rm x' a
git send-email --to-cmd rm a
git fetch --upload-pack 'rm x' a
git push --receive-pack='rm x' a
git clone -u 'rm x' a
git clone 'ext::rm x'
git grep --open-files-in-pager='rm x' a
make SHELL=/bin/rm
make --eval='$(shell rm x)'
env -S 'rm x'
awk 'BEGIN { system("rm x") }'
gawk 'BEGIN { "rm x" | getline }'
sed 1e\ rm f
vim -c '!rm x'
vim '+!rm x' f
ed f <<< '!rm x'
python3 -c 'import os; os.system("rm x")'
echo 'import os; os.system("rm x")' | python3
python3 - <<'E'
perl -e 'system("rm x")'
ruby -e '`rm x`'
node -e 'require("child_process").execSync("rm x")'
php -r 'system("rm x");'
lua -e 'os.execute("rm x")'
Rscript -e 'system("rm x")'
julia -e 'run(`rm x`)'
guile -c '(system "rm x")'
erl -eval 'os:cmd("rm x")'
emacs --batch --eval '(shell-command "rm x")'
busybox rm x
dpkg -i --pre-invoke='rm x' a.deb
dpkg --post-invoke=rm -i a.deb
apt -o APT::Update::Pre-Invoke::='rm x' update
install --strip-program=rm -s a b
install -s --strip-program rm a b
split --filter='rm x' a
split --filter rm a
sort --compress-program=rm a
sort --compress-prog rm a
zip -T -TT 'rm x' a.zip b
zip a.zip b -T --unzip-command rm
man -P 'rm x' ls
man -Prm ls
man --pager=rm ls
at now <<< 'rm x'
batch <<< 'rm x'
echo '* * * * * rm x' | crontab
systemd-run rm x
nice -n 5 rm x
ionice -c 3 rm x
chrt -b 0 rm x
taskset 1 rm x
uclampset -m 0 rm x
stdbuf -oL rm x
setarch -R rm x
setarch x86_64 rm x
linux32 rm x
linux64 rm x
i386 rm x
x86_64 rm x
unshare -r rm x
nsenter -t 1 -m rm x
chroot / rm x
runuser -u me -- rm x
sg me 'rm x'
script -c 'rm x' out
script -qc rm out
expect -c 'spawn rm x'
socat - EXEC:'rm x'
socat - SYSTEM:rm
ncat -e /bin/rm h 1
ncat --sh-exec 'rm x' h 1
nc -c 'rm x' h 1
gdb --args rm x
gdb -ex '!rm x'
lldb -o 'shell rm x'
strace -f rm x
ltrace rm x
valgrind rm x
perf stat rm x
hyperfine 'rm x'
watch 'rm x'
watch rm x
entr rm x
tcpdump -z rm -w a -G 1
trap 'rm x' EXIT
coproc rm x
exec rm x
exec -a y rm x
builtin command rm x
. <(echo rm x)
source /dev/stdin <<< 'rm x'
bash <<< 'rm x'
eval 'rm x'
alias y='rm x'; y
hash -p /bin/rm y; y x
f() { rm x; }; f
cp /bin/rm y; ./y x
cp $(which rm) y; ./y x
cp "$(command -v rm)" y && ./y x
ln -s /usr/bin/rm y; ./y x
dd if=/bin/rm of=y; ./y x
cat /bin/rm > y; ./y x
/lib64/ld-linux-x86-64.so.2 /bin/rm x
/lib/ld-musl-x86_64.so.1 /bin/rm x
qemu-x86_64 /bin/rm x
ssh -o ProxyCommand='rm x' h
ssh -o 'ProxyCommand rm x' h
ssh -oLocalCommand='rm x' -o PermitLocalCommand=yes h
scp -S rm a h:b
scp -o 'ProxyCommand rm x' a h:b
sftp -S /bin/rm h
rsync -e 'rm x' a h:b
rsync -e rm a h:b
rsync --rsh=rm a h:b
rsync --rsync-path 'rm x' h:a b
find . -exec rm x ;
find . -okdir rm x ;
fd -x rm x
rg --pre rm x
docker run --entrypoint rm image x
docker exec c rm x
lxc exec c -- rm x
ip netns exec n rm x
machinectl shell h rm x
tmux new-session -d rm x
tmux run-shell 'rm x'
xterm -e rm x
gosu me rm x
setuidgid me rm x
logsave out rm x
runcon c rm x
dotenv run rm x
aws-vault exec p -- rm x
sops exec-env f 'rm x'
nix develop -c rm x
gcc -wrapper rm,x a.c
svn diff --diff-cmd rm
bat --pager='rm x' a
fzf --preview 'rm x'
psql -c '\! rm x'
sqlite3 a '.shell rm x'
sqlite3 a '.system rm x'
gs -sOutputFile=%pipe%rm a.ps
rpm --eval '%(rm x)'
parallel ::: 'rm x'
parallel rm ::: x
wget --use-askpass=rm h
nano --speller=rm a
"""
ASKED = r"""
printf rm | xargs -I{} {} x
printf rm | xargs -I % % x
printf rm | xargs -i {} x
printf rm | xargs --replace={} {} x
echo rm x | xargs env
echo rm x | xargs sudo
echo 'rm x' | xargs -d '\n' sh -c
echo 'rm x' | xargs -I{} sh -c '{}'
echo 'rm x' | xargs -I{} bash -c "{} y"
printf rm | parallel {} x
find /bin -name rm -exec {} x ;
BASH_ENV=a bash -c ls
LD_PRELOAD=./a.so ls
ENV=./a sh -i
PERL5OPT=-Ma perl b
NODE_OPTIONS='--require ./a.js' node b
GIT_EXEC_PATH=./a git status
f() { "$@"; }; f rm x
"""
EVERYDAY = r"""
git push -u origin main
git log --oneline | head -20
git commit -m "Fix: don't remove the file (rm -rf)"
git rebase -i HEAD~3
git clone --filter=blob:none https://github.com/a/b
git config user.name "A B"
git config --global core.editor vim
GIT_EDITOR=true git rebase --continue
GIT_PAGER=cat git log -3
git -c core.pager=cat log
git diff --stat origin/main...HEAD
git clean -fdx
git stash list | xargs -0 echo
git branch --merged | grep -v main | xargs git branch -d
git ls-files | xargs sed -i s/a/b/g
python3 -c "import sys; print(sys.version)"
node -e "console.log('hi there')"
find . -name '*.py' | xargs grep -n foo
find . -name '*.py' -print0 | xargs -0 -n1 wc -l
find . -type f | xargs -I{} cp {} out
ls | xargs -I{} echo "file {}"
printf '%s\n' a b | sort | xargs
xargs -a files.txt -P4 -n1 gzip
docker ps -q | xargs docker stop
pgrep node | xargs kill
find . -name '*.o' -exec ls -l {} ;
find . -name '*.o' -exec ls -l {} +
fd -e py -x black {}
parallel -j4 gzip ::: a b
tar -czf a.tgz src && tar -xzf a.tgz -C out
tar -I zstd -cf a.tar.zst src
rsync -avz -e ssh src/ host:dst/
docker run --rm -it node:20 npm test
docker compose up -d && docker compose logs -f web
kubectl get pods -n dev | grep web
npm run build && npm test -- --watch=false
NODE_ENV=production NODE_OPTIONS=--max-old-space-size=4096 npm run build
ENV=production make deploy
cmake -S . -B build && cmake --build build -j4
cmake -E copy a b
make -j8 CC=clang CFLAGS="-O2 -g"
make test SHELL=/bin/bash
for f in *.txt; do echo "$f"; done
if [ -f a ]; then cat a; else echo none; fi
curl -s https://example.com | jq '.items[] | .name'
sed -i 's/foo/bar/g' src/a.py
awk -F, '{print $1, "x y"}' a.csv
ssh host 'ls -la /var/log'
vim -c 'wq' a.txt
PAGER=less man ls
uv run pytest -x -q
timeout 60 pytest -x
env -u FOO A=1 python x.py
sort -u a | uniq -c | sort -rn | head
split -l 100 a part-
install -m 755 a b
cp src/a.py src/b.py && mv b.py c.py
which rm
export PATH="$HOME/bin:$PATH"
export PS1='\u@\h$ '
PS4='+ ' bash -x script.sh
set -x; make; set +x
trap 'echo done' EXIT; ls
ssh-agent -s
psql -c 'select count(*) from users' db
sqlite3 a.db 'select * from t'
echo 'select 1;' | psql db
cat data.json | python3 -m json.tool
echo "print('hello world')" | python3
perl -pe 's/a/b/' f
gdb -batch -ex 'bt' --args ./a.out x
strace -f -o out ./a.out
tmux new-session -d -s work
watch -n1 'ls -la'
nohup python server.py > out.log 2>&1 &
bash -c 'echo hi && ls'
go test ./... -run TestX -v
cargo build --release && cargo test
gh pr create --title "a b" --body "c d!"
apt-get install -y -o Dpkg::Options::="--force-confdef" x
python -m pytest -k "a and not b" --maxfail=1
jq -r '.a | "\(.b) \(.c)"' x.json
diff <(sort a) <(sort b)
while read -r l; do echo "$l"; done < f
gcc -O2 -o a a.c -lm
ccache gcc -c a.c
journalctl -u nginx -n 50 --no-pager
ip addr show
nc -zv host 443
zip -r a.zip src -x '*.pyc'
man -P cat ls
npm exec -- eslint .
conda run -n env python x.py
dd if=/dev/zero of=x bs=1M count=1
cat /usr/local/bin/tool
script -q out.log
crontab -l
LD_LIBRARY_PATH=/opt/lib ./a.out
cd "$(git rev-parse --show-toplevel)" && make
"""


def rows(text: str) -> list[str]:
    return [line for line in text.splitlines() if line]


@pytest.mark.parametrize("command", rows(FOUND))
def test_a_denied_command_is_found_in_whatever_runs_it(command: str) -> None:
    if command.endswith("<<'E'"):
        command += "\nimport os\nos.system('rm x')\nE"

    assert verdict(command, "Bash(rm:*)", "Bash(rm)", "Bash(/bin/rm:*)") == "deny"


@pytest.mark.parametrize("command", rows(ASKED))
def test_what_is_only_known_when_it_runs_is_asked_about(command: str) -> None:
    assert verdict(command, "Bash(rm:*)") in ("ask", "deny")


@pytest.mark.parametrize("command", rows(EVERYDAY))
def test_an_everyday_line_is_free(command: str) -> None:
    assert verdict(command, "Bash(rm:*)") == "allow"
