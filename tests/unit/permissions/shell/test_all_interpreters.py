"""A rule that denies `rm` finds every known way to run it by another program; everyday lines do not match.

The rows come from the manual pages of commonly installed programs, and from other programs that are known to run
commands. In bypassPermissions, a missed command would run.
"""

from __future__ import annotations

import pytest

from parley.permissions.base import Allow, Deny, ToolRequest
from parley.permissions.decision import decide
from parley.permissions.rule import Rule, parse_rule
from parley.permissions.rules import RuleSet
from tests.helpers.file_tree import Tree


def verdict(command: str, *denied: str) -> str:
    read = [parse_rule(text, "deny", "flag", "/w") for text in denied]
    rules = RuleSet(cwd="/w", rules=tuple(rule for rule in read if isinstance(rule, Rule)))
    decision = decide(
        ToolRequest(tool="Bash", input={"command": command}, cwd="/w"), rules, "bypassPermissions", Tree()
    )
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
tar xIf rm f
tar cIf rm f a
tar cfI a.tar rm b
tar xfI a.tar 'rm x'
tar cfF a.tar rm b
sh /dev/stdin <<< 'rm x'
bash /dev/fd/0 <<< 'rm x'
bash -s a b <<< 'rm x'
bash -s -- a <<< 'rm x'
bash -O extglob <<< 'rm x'
bash -o posix <<< 'rm x'
bash --norc --posix <<< 'rm x'
echo 'rm x' | bash -s arg
. /proc/self/fd/0 <<< 'rm x'
env --split-string='rm x'
env -S'rm x'
scriptlive -c 'rm x'
scriptlive --command 'rm x' a b
switch_root / /bin/rm x
mount.fuse rm a
sdiff --diff-program rm a b
diff3 --diff-program rm a b c
bsdtar --use-compress-program rm -xf a
RSYNC_CONNECT_PROG='rm x' rsync a h::b
sftp -s rm h
git -c core.gitProxy='rm' fetch
git -c mergetool.x.path=rm mergetool -t x
git -c difftool.x.path=/bin/rm difftool -t x
git -c man.x.path=/bin/rm help a
git -c instaweb.httpd=rm instaweb
git -c sendemail.smtpServer=/bin/rm send-email a
git -c imap.tunnel='rm x' imap-send
git -c remote.o.vcs=rm fetch o
git -c remote.o.url='ext::rm x' fetch o
git -c url.'ext::rm x'.insteadOf=a fetch a
git -c submodule.a.update='!rm x' submodule update
git -c credential.https://a.helper='!rm x' fetch
A='!rm x' git --config-env=alias.x=A x
A='!rm x' git --config-env alias.x=A x
git archive --remote='ext::rm x' HEAD
git web--browse -b rm a
git instaweb -d rm
git instaweb -b rm
git shell -c 'rm x'
make -E 'a:;rm x'
make CC='rm x'
make CC=rm
gdb -ex 'sh rm x'
gdb -ex 'python import os; os.system("rm x")'
gdb -ex 'pi import os; os.system("rm x")'
gdb -ex 'pipe bt | rm x'
gdb -ex '| bt | rm x'
gdb -ex 'target remote | rm x'
gdb -ex 'set exec-wrapper rm' -ex run a
strace -o '|rm x' ls
strace -o '!rm x' ls
strace -f -o'|rm x' ls
strace --output='|rm x' ls
perl -e 'exec qw(rm x)'
perl -e 'exec q(rm x)'
perl -e 'qx{rm x}'
sqlite3 a '.sh rm x'
sqlite3 a '.sys rm x'
sqlite3 a '.output |rm x' 'select 1'
sqlite3 a ".once '|rm x'"
sqlite3 a '.import "|rm x" t'
sqlite3 a '.import |rm\ x t'
vim -c 'call system("rm x")'
vim -c "call system('rm x')"
vim -c 'let x=system("rm x")'
vim -c ':call job_start("rm x")'
vim -c 'call job_start(["rm","x"])'
vim -c ':term rm x'
vim -c 'terminal ++close rm x'
vim -c 'set grepprg=rm | grep x'
vim -c 'set grepprg=rm\ x' -c grep
vim -c 'set makeprg=rm\ x' -c make
vim -c 'set mp=rm\ x' -c make
vim -c 'set shell=rm' -c '!x'
vim -c 'set keywordprg=rm'
vim -c 'set equalprg=rm'
vim -c 'set formatprg=rm'
vim -c 'set csprg=rm'
vim -c 'cexpr system("rm x")'
vim -c 'py3 import os; os.system("rm x")'
vim -c 'py3 __import__("os").system("rm x")'
vim -c 'perl system("rm x")'
vim -c 'lua os.execute("rm x")'
vim -c 'ruby `rm x`'
vim '+call system("rm x")'
nvim -es -c 'lua vim.fn.system("rm x")'
less +'|$rm x' f
LESSEDIT='rm x' less f
LESS='+!rm x' less f
LESS='+!rm x' man ls
MORE='+!rm x' more f
systemd-run -p ExecStartPre='/bin/rm x' ls
systemd-run -p ExecStopPost='rm x' ls
systemd-run --property=ExecStartPre=rm ls
systemd-notify --exec ls \; rm x
systemd-socket-activate -l 1 rm x
systemd-socket-activate -l 1 --inetd /bin/rm x
systemd-socket-activate -E A=b -l 1 /bin/rm
systemctl set-property a ExecStart=rm
homectl with u rm x
homectl with u -- rm x
systemd-dissect --with img rm x
systemd-vmspawn rm x
dpkg-buildpackage -r'rm'
dpkg-buildpackage -prm
dpkg-architecture -c rm x
dpkg-architecture --command 'rm x'
debuild -rrm
apt -o Dir::Bin::dpkg=/bin/rm install a
apt-get -o Dir::Bin::Dpkg=rm install a
apt-get -o APT::Update::Post-Invoke-Success::='rm x' update
apt-get -o DPkg::Pre-Install-Pkgs::='rm x' install a
apt-get -o Acquire::http::ProxyAutoDetect=/bin/rm update
apt-get -o Acquire::http::Proxy-Auto-Detect=/bin/rm update
apt-get -o Dir::Bin::gzip=rm update
apt-get -o Dir::Bin::dpkg-buildpackage='rm x' -b source a
debconf rm x
debconf -omine rm x
zless '+!rm x' a
sed '1{e rm x' -e '}' f
sed '$!e rm x' f
sed '1!e rm x' f
sed '/a/Ie rm x' f
expect -c 'spawn -noecho rm x'
expect -c 'open "|rm x"'
tmux send -t a rm Space x Enter
tmux if-shell -b 'true' 'run "rm x"'
tmux set-hook -g a 'run "rm x"'
tmux set -g default-shell /bin/rm
tmux set -g status-right '#(rm x)'
tmux display-message -p '#(rm x)'
tmux display -p '#(rm x)'
tmux confirm-before 'run "rm x"'
tmux command-prompt 'run "rm x"'
tmux display-menu a b 'run "rm x"'
tmux choose-tree 'run "rm x"'
busybox tcpsvd 0 1 rm x
busybox udhcpc -s rm
busybox telnetd -l /bin/rm
busybox inotifyd rm x
fc -e rm
fc -e 'rm x'
iptables --modprobe=rm -L
iptables --modprobe /bin/rm -L
dhclient -sf rm eth0
dhclient -sf /bin/rm
pppd connect 'rm x'
modprobe a --install rm
debugfs -R '!rm x' x
gimp -b '(system "rm x")'
mutt -e 'source "rm x|"'
mail -E 'shell rm x'
exim -be '${run{/bin/rm x}}'
gpg-connect-agent --exec 'rm x'
gpgtar --gpg rm x
gpgsm --agent-program rm x
cpp -wrapper rm x
clang --wrapper rm
go vet -vettool=/bin/rm .
go env -w CC=rm
CC=rm go build
CC='rm x' make
CC=rm ./configure
cargo build --config build.rustc="rm"
CARGO_BUILD_RUSTC=rm cargo build
RUSTC=rm cargo build
RUSTDOC=rm cargo doc
npm exec --call='rm x'
npm explore a -- rm x
npm explore a 'rm x'
pip --python rm install x
pip --python /bin/rm install
pip config edit --editor rm
uvx rm x
uvx --from a rm x
tox exec -- rm x
tox exec -e py -- rm x
just --command rm x
just --shell rm
just -c rm x
just --chooser rm
ruby -e '%x(rm x)'
java -XX:OnError='rm x' A
java -XX:OnOutOfMemoryError='rm x' A
java -XX:OnOutOfMemoryError="rm x" -jar a
JAVA_TOOL_OPTIONS='-XX:OnError="rm x"' java A
_JAVA_OPTIONS='-XX:OnError=rm' java A
mvn exec:exec -Dexec.executable=rm -Dexec.args=x
mvn exec:exec -Dexec.executable="rm"
docker create a rm x
docker container create a rm x
docker service create a rm x
podman unshare rm x
podman machine ssh rm x
podman machine ssh m rm x
buildah run a rm x
buildah unshare rm x
buildah run a -- rm x
kubectl create job a --image=b -- rm x
kubectl create cronjob a --image=b --schedule='* * * * *' -- rm x
helm install --post-renderer rm a b
helm install --post-renderer=/bin/rm a b
helm template --post-renderer ./rm a
gh alias set x '!rm x'
gh alias set --shell x 'rm x'
gh alias set x -s 'rm x'
gh config set editor rm
gh config set pager 'rm x'
gh config set browser rm
gh codespace ssh -- rm x
gh codespace ssh rm x
gh cs ssh -- rm x
gcloud compute ssh h --command 'rm x'
gcloud compute ssh h -- rm x
gcloud compute ssh h -- 'rm x'
aws ecs execute-command --command 'rm x'
aws ecs execute-command --command rm
heroku run rm x
heroku run 'rm x'
fly ssh console -C 'rm x'
flyctl ssh console -C rm
railway run rm x
vault ssh -- rm x
dotenvx run -- rm x
envchain a rm x
envconsul rm x
consul lock a rm x
consul watch -type=key rm x
etcdctl watch a -- rm x
etcdctl exec-watch a -- rm x
etcdctl lock a rm x
watchman -- trigger . a -- rm x
watchman-make --run 'rm x'
cargo watch -x 'x' -s 'rm x'
cargo watch -s 'rm x'
cargo watch -- rm x
onchange a -- rm x
wait-for-it h:1 -- rm x
./wait-for-it.sh h:1 -- rm x
wait-for-it.sh h:1 -- rm x
dockerize -wait a rm x
start-server-and-test 'rm x' u 'ls'
dotenv-cli rm x
tsx -e 'require("child_process").execSync("rm x")'
ts-node -e 'require("child_process").execSync("rm x")'
ts-node --eval 'require("child_process").execSync("rm x")'
zx --eval 'await $`rm x`'
hyperfine -p rm ls
hyperfine --cleanup rm ls
hyperfine --prepare=rm ls
hyperfine rm
hyperfine -S rm ls
perf ftrace rm x
uftrace record rm x
ts rm
sem rm x
sem --id a -j1 rm x
pueue add rm x
pueue add -- rm x
pueue add 'rm x'
task-spooler rm x
dvc run rm x
dvc stage add -n a -d b rm x
mpirun -np 4 rm x
mpirun rm x
mpiexec -n 2 rm x
srun rm x
srun -N 1 rm x
sbatch --wrap='rm x'
sbatch --wrap 'rm x'
salloc rm x
qsub -b y rm x
bsub rm x
bsub 'rm x'
xonsh -c 'rm x'
nu -c 'rm x'
nu -e 'rm x'
elvish -c 'rm x'
tcsh -c 'rm x'
csh -c 'rm x'
csh -fc 'rm x'
yash -c 'rm x'
oil -c 'rm x'
osh -c 'rm x'
posh -c 'rm x'
rc -c 'rm x'
es -c 'rm x'
pwsh -Command rm x
ksh93 -c 'rm x'
bash5 -c 'rm x'
bash-5.2 -c 'rm x'
zsh-5.9 -c 'rm x'
sh.distrib -c 'rm x'
static-sh -c 'rm x'
bash-static -c 'rm x'
sash -c 'rm x'
lksh -c 'rm x'
zsh5 -c 'rm x'
pdksh -c 'rm x'
loksh -c 'rm x'
rksh -c 'rm x'
ksh2020 -c 'rm x'
brush -c 'rm x'
cvs -e 'rm x' commit
cvs -e rm commit
dpkg-buildpackage -R /bin/rm
dpkg-buildpackage --rules-file=/bin/rm
dpkg-buildpackage --hook-init='rm x'
dbus-run-session --dbus-daemon=/bin/rm -- ls
fd --exec=rm a
fdfind --exec-batch=rm a
fd -x rm
rg --pre=rm a
rg --pre rm a
rg --hostname-bin rm a
ld --error-handling-script=/bin/rm a.o
gcc -Wl,--error-handling-script=/bin/rm a.c
git lfs merge-driver --program 'rm x'
git merge-index rm -a
git merge-index -o /bin/rm -a
git remote-ext origin 'rm x'
git -c lfs.customtransfer.x.path=/bin/rm lfs push
meson test --wrapper 'rm x'
meson test --wrapper=rm
mutt -e 'set editor=rm' a
mutt -e 'set sendmail=/bin/rm' a
proot -q 'rm x' ls
proot --qemu='rm x' ls
ssh-copy-id -o 'ProxyCommand rm x' h
make RM='rm x'
make CC=rm
RM='rm x' make
make -j4 FOO='rm -rf x' all
MANOPT='-P "rm x"' man ls
MANOPT="-P 'rm x'" man ls
export MANOPT='-Prm' && man ls
pwsh -EncodedCommand cgBtACAAeAA=
pwsh -enc cgBtACAAeAA=
powershell -e cgBtACAAeAA=
printf '.sy rm x\n' | groff -U
FZF_DEFAULT_OPTS="--preview 'rm x'" fzf
VIMINIT=':!rm x' vim
ZIPOPT="-T -TT 'rm x'" zip a b
TAR_OPTIONS="--to-command='rm x'" tar xf a
JAVA_TOOL_OPTIONS='-XX:OnError=rm' java a
SENDMAIL=/bin/rm darcs send
CCACHE_PREFIX=rm ccache gcc
RSYNC_SSL_OPENSSL=/bin/rm rsync-ssl a
GROFF_AWK_INTERPRETER=rm pdfroff a
MAKEFLAGS='RM=/bin/rm' make
pandoc -F rm a.md
pandoc --filter=/bin/rm a.md
pandoc --pdf-engine /bin/rm a.md
mosh --ssh=rm h
mosh --server='rm x' h
xetex -output-driver 'rm x' a
debuild --rootcmd 'rm x'
duplicity --scp-command rm a b
restic --password-command 'rm x' ls
meson test --gdb-path rm
TS_ONFINISH=/bin/rm tsp ls
PDSH_SSH_ARGS_APPEND="-o 'ProxyCommand rm x'" pdsh -w h ls
GPROFNG_SSH_REMOTE_DISPLAY='rm x' gprofng a
lerna exec -- rm x
lerna exec "rm x"
lerna exec --scope a rm x
nx exec -- rm x
nx exec "rm x"
dotenv rm x
dotenv -e .env rm x
wsl rm x
wsl -d Ubuntu rm x
echo 'esyscmd(rm x)' | m4
m4 <<< 'syscmd(`rm x'"'"')'
nix-shell --run rm
oc rsh p rm x
crictl exec c rm x
ctr run i c rm x
minikube ssh "rm x"
composer exec rm x
gem exec rm x
mix cmd rm x
jj util exec -- rm x
meson devenv rm x
terragrunt exec -- rm x
pulumi env run e -- rm x
cdk synth --app "rm x"
netlify dev:exec rm x
firebase emulators:exec "rm x"
brew bundle exec rm x
bazel run --run_under="rm x" //a
az vm run-command invoke --scripts "rm x"
go vet -vettool=rm
pipx run rm x
heroku local:run rm x
autossh h rm x
bun exec 'rm x'
git bisect view rm x
"""
ASKED = r"""
pwsh -EncodedCommand $X
pwsh -enc nonsense!
pwsh -e "$(cat x)"
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
BASH_ENV=<(echo rm x) bash -c :
bash --rcfile <(echo rm x) -i
bash --init-file <(echo rm x) -i
bash --rcfile=<(echo rm x) -i
make -f <(printf 'a:\n\trm x\n')
echo 'a:;rm x' | make -f -
echo 'a:;rm x' | make -f-
echo 'a:;rm x' | make --file=-
cmake -P <(echo 'execute_process(COMMAND rm x)')
gawk -v 'a=rm x' 'BEGIN{system(a)}'
awk -va='rm x' 'BEGIN{system(a)}'
awk 'BEGIN{system(ENVIRON["A"])}'
awk 'BEGIN{system(ARGV[1])}' 'rm x'
awk '{system($0)}' <<< 'rm x'
echo 'rm x' | awk '{system($0)}'
awk '{ $0 | getline }' f
awk 'BEGIN{c="r" "m x"; system(c)}'
sed 'e' <<< 'rm x'
echo 'rm x' | sed e
sed 's/^/r/e' <<< 'm x'
ip -batch <(echo netns exec a rm x)
just -f <(echo 'a:; rm x')
"""
EVERYDAY = r"""
git stash push -m x
git lfs ls-files
git lfs pull
git subtree add --prefix a b main
make V=1 test
make -j4 CFLAGS=-O2 all
make PREFIX=/usr install
pandoc --filter pandoc-crossref a.md -o b.pdf
git --no-pager rm --cached x
useradd --shell /bin/bash bob
npm config set editor code
rg --pre pdftotext a
docker ps --filter name=x
git merge-index git-merge-one-file -a
groff -man -Tascii a.1
CC=clang make
fd -e py --exec wc -l
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
apt-get install -y curl git
sudo apt-get update && sudo apt-get install -y curl
apt install curl
brew install curl
apk add --no-cache curl bash
dnf install -y curl
which curl
which -a rm curl
command -v curl
command -v curl >/dev/null 2>&1 || echo missing
type rm
man curl
man rm
docker rm -f web
docker rm $(docker ps -aq)
docker volume rm data
docker compose rm -f
docker run --rm -it python:3.12 python -V
podman rm x
git rm --cached .env
git rm -r old
npm rm lodash
yarn remove lodash
pnpm rm lodash
grep -rn curl src
grep -rn "rm -rf" scripts
rg 'git push' .github
rg curl
echo "curl https://x"
echo rm x
echo "do not git push"
printf 'rm %s\n' a
git log --grep='git push'
git log --oneline --author=me -n 5
git commit -m "Remove curl usage; use requests"
git commit -m "rm old files"
git commit -am 'npm publish fix'
git stash push -m wip
git stash push
git pull --rebase origin main
git fetch --all --prune
git checkout -b fix/rm-files
git switch -c curl
git branch -d curl
git tag -a v1 -m "release v1"
git remote add origin git@github.com:a/b.git
git remote set-url --push origin no_push
git config push.default simple
git config --get push.default
git config alias.st status
git config --global alias.co checkout
git config alias.lg "log --oneline --graph"
git -c color.ui=never diff
git -C sub status
git subtree pull --prefix a b main
git lfs pull
git submodule update --init --recursive
git submodule foreach 'git status'
git bisect run pytest -x
git rebase --exec 'make test' main
git worktree add ../x main
git cherry-pick -x abc
git show HEAD --stat
git diff -- . ':!package-lock.json'
git blame -L 1,20 src/a.py
git grep -n rm
npm test
npm run build
npm run publish:docs
npm run rm
npm pack
npm install --save-dev eslint
npm ci
npm view curl
npm search publish
npm outdated
npx eslint src --fix
npx prettier --check .
npx tsc --noEmit
yarn build
pnpm -r build
bun test
node server.js
node --test
node -e 'console.log(process.argv)' rm
python manage.py migrate
python script.py rm x
python3 -m venv .venv
python3 -m http.server 8000
python -m pytest tests/test_rm.py
pytest tests -k rm
pytest -k "curl and not slow"
python setup.py sdist bdist_wheel
pip install requests
pip show curl
uv sync
uv pip install -e .
poetry install
ruff check --fix .
mypy --strict src
make
make clean
make test V=1
make CC=clang
make -C sub all
make -j"$(nproc)"
cmake --build build --target install
cmake -B build -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_COMPILER=clang
ninja -C build
cargo test -- --nocapture
cargo run -- rm x
cargo clippy --all-targets
go test ./...
go build -ldflags="-s -w" ./cmd/x
CGO_ENABLED=0 go build -o bin/x .
CC=gcc CXX=g++ ./configure --prefix=/usr
CC="ccache gcc" make
ls -la
ls -la | grep rm
find . -name '*.pyc' -delete
find . -type f -name '*.sh' -exec chmod +x {} +
find . -name node_modules -prune -o -type f -print
cat README.md | head -50
tail -f log.txt
sed -n '1,20p' a.py
sed -i 's/curl/wget/g' a.sh
sed -e 's/a/b/' -e 's/c/d/' f
sed -i -e 's/e/f/g' a.e
sed '/rm/d' f
sed -n '/start/,/end/p' f
sed 's/one/e two/' f
awk '{print $1}' f
awk -F: '$3 > 1000 || $1 == "x" {print $1}' /etc/passwd
awk '{print $1 | "sort"}' f
awk '/a|b/ {n++} END {print n}' f
awk '{ if (a || b) print }' f
awk '$1 ~ /x|y/ {print $2}' f
awk 'NR==FNR{a[$1]=1;next} $1 in a' <(sort a) <(sort b)
jq '.scripts.rm' package.json
jq '.a | keys' x.json
tar czf a.tgz src
tar xzf a.tgz
tar tf a.tar
tar cvfz a.tgz b
tar xvf a.tar.gz -C /tmp
tar --exclude=node_modules -czf a.tgz .
zip -r a.zip .
unzip -o a.zip
rsync -av --delete src/ dst/
rsync -avz -e 'ssh -p 22' a h:b
ssh h uptime
ssh -i key h 'ls -l'
scp a h:b
ssh -o StrictHostKeyChecking=no h ls
kubectl get pods
kubectl logs -f deploy/web
kubectl exec -it web -- ls
kubectl apply -f k8s/
helm upgrade --install web chart
helm template web chart
terraform plan
terraform apply -auto-approve
aws s3 ls
aws s3 rm s3://b/k
aws s3 cp a s3://b/
gcloud storage rm gs://b/k
gh pr create --title "Remove curl" --body "Uses rm. Don't merge"
gh pr view 12 --web
gh run list
gh issue create -t 'rm fails' -b 'git push fails'
gh config set git_protocol ssh
gh repo clone a/b
gh secret set X
psql -c "select a || 'x' from t where b = 'rm'"
psql -c 'delete from t where id = 1'
mysql -e 'show tables'
sqlite3 a.db '.tables'
sqlite3 a.db '.schema users'
sqlite3 a.db "select a || ' ' || b from t"
redis-cli ping
vim -c 'set nu' a
vim +10 a.txt
nvim --headless "+Lazy! sync" +qa
code .
tmux new -d -s x 'npm run dev'
tmux send-keys -t x 'npm test' Enter
tmux ls
tmux kill-session -t x
screen -ls
systemctl status nginx
systemctl restart web
sudo systemctl reload nginx
journalctl -u web -f
ps aux | grep curl
pgrep -fl curl
kill -9 123
pkill -f 'node server'
lsof -i :3000
env | sort
export FOO=bar
FOO=bar BAR="$X" npm start
ENV="$X" make
EDITOR="$HOME/bin/e" git commit
LD_LIBRARY_PATH="$X" ./a
PATH="$PWD/bin:$PATH" make
source .venv/bin/activate && pytest
. ./env.sh
bash script.sh
bash scripts/deploy.sh --dry-run
bash -x script.sh arg
bash -euo pipefail script.sh
bash --norc script.sh
sh -c 'echo hi'
sh install.sh -s x
./gradlew build
./gradlew test --tests 'a.b'
./mvnw -q package
./manage.sh start
./run.sh --message "don't stop"
mytool build --name "it's $5"
mytool --config=a.yml deploy
kcmd a b c 'd e'
protoc --go_out=. a.proto
ffmpeg -i a.mp4 -vf scale=10:10 b.mp4
convert a.png -resize 50% b.png
openssl rand -hex 32
gpg --list-keys
strace -o out.txt ls
strace -c ls
gdb -batch -ex 'run' ./a
gdb ./a core
time make
time npm run build
timeout 30 npm test
nice -n 10 make
nohup ./server &
watch -n 5 kubectl get pods
xargs -n1 echo < f
ls *.txt | xargs wc -l
git ls-files '*.py' | xargs ruff check
git diff --name-only | xargs -I{} echo {}
parallel -j2 convert {} {.}.png ::: *.jpg
hyperfine 'npm test'
hyperfine --warmup 3 'ls -la'
at -l
mix deps.get
rails db:migrate
bundle exec rspec
bundle install
rake test
composer install
php artisan migrate
dotnet build
swift build
flutter pub get
java -jar a.jar --port 80
mvn -q -DskipTests package
mvn test -Dtest=Foo
docker build -t a .
docker build --build-arg A=b -f Dockerfile .
docker exec web ls
docker create --name x img
docker network create net
docker compose exec web bash -c 'ls'
while true; do date; sleep 1; done
if ! command -v rm >/dev/null; then echo no; fi
case "$1" in start) echo a;; esac
x=$(git rev-parse HEAD); echo "$x"
echo "$(date): é rm"
git commit -m "Réparer: ne pas utiliser rm ici"
echo 'naïve curl' >> notes.txt
test -f rm && echo yes
[ -x /bin/rm ] && echo yes
[[ -f a && ! -d b ]] && echo x
diff -u a b
diff3 a b c
patch -p1 < a.patch
fc -l
set -euo pipefail
trap 'echo bye' EXIT
alembic upgrade head
celery -A app worker -l info
gunicorn app:app -w 4 -b 0.0.0.0:8000
uvicorn app:app --reload
flask run
django-admin startproject x
streamlit run app.py
jupyter nbconvert --to html a.ipynb
sphinx-build -b html docs out
mkdocs serve
semgrep --config auto
trivy image a
act -j test
vercel deploy --prod
fly deploy
fly ssh console
heroku logs --tail
heroku run rails c
pre-commit run --all-files
tox -e py312
nox -s tests
coverage run -m pytest
black .
k6 run a.js
storybook build
next build
vite build
tsx src/index.ts
ts-node src/a.ts
tsx watch src/a.ts --message 'use git push later'
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
    others = (
        [] if command.startswith(("git push", "curl")) else ["Bash(curl:*)", "Bash(git push:*)", "Bash(npm publish:*)"]
    )

    assert verdict(command, "Bash(rm:*)", *others) == "allow"


PUSHES = r"""
git subtree push -P a origin main
git subtree -P a push origin main
git subtree --prefix a push
git lfs push origin main
git-lfs push origin
git send-pack host
git http-push u
git -C x lfs push o
git-send-pack h
/usr/lib/git-core/git-send-pack h
git subtree push
git -c alias.y=push y
git config alias.y push
git config alias.y 'push --force'; git y
git for-each-repo --config=a push
git-push origin
/usr/lib/git-core/git-push origin
mpirun git push
kcmd --on-exit='git push' a
"""


@pytest.mark.parametrize("command", rows(PUSHES))
def test_a_denied_subcommand_is_found_under_another_name(command: str) -> None:
    assert verdict(command, "Bash(git push:*)") == "deny"


@pytest.mark.parametrize("request_line", [".sy rm x", ".pso rm x", "'pi rm x"])
@pytest.mark.parametrize("program", ["groff -U", "troff -U", "nroff -U -man"])
def test_the_program_that_a_formatter_runs_is_found(program: str, request_line: str) -> None:
    assert verdict(f"{program} <<'E'\n{request_line}\nE", "Bash(rm:*)") == "deny"
