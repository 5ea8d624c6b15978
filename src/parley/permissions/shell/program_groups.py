"""Groups of programs, by what they do with their arguments. Used to find denied commands and files.

RUNNERS run a command in their arguments. The arguments of INERT programs are never a command. In those of any other
program there may be one: `mpirun -n 4 rm x`, `kcmd --on-exit='rm x'`. For a program that is missing here, `rm` among
its arguments matches a rule that denies `rm`.

The groups also tell which programs take files: an argument that is only known at run time may be any file, unless the
program opens none.
"""

from __future__ import annotations

from parley.permissions.base import word_set

RUNNERS = {
    **dict.fromkeys(
        word_set(
            "time nice nohup stdbuf command builtin noglob env sudo doas xargs watch setsid ionice exec coproc strace "
            "ltrace unshare nsenter busybox toybox parallel caffeinate chrt catchsegv systemd-run script gdb ! then do "
            "else elif if while until prlimit torify torsocks proxychains proxychains4 dbus-run-session xvfb-run "
            "fakeroot valgrind entr screen firejail bwrap unbuffer chronic npx bunx rlwrap cpulimit tsp choom pkexec "
            "ssh-agent start-stop-daemon eatmydata linux32 linux64 i386 x86_64 uname26 arch daemonize dumb-init tini "
            "catatonit chpst softlimit systemd-inhibit systemd-cat systemd-nspawn run0 nsjail minijail0 fakechroot "
            "ccache distcc sccache scan-build bear intercept-build heaptrack uftrace tsocks sshpass "
            "dbus-launch xinit xterm urxvt rxvt alacritty kitty foot konsole gnome-terminal xfce4-terminal terminator "
            "st dtach abduco byobu ifne run-one uclampset openvt open cross-env env-cmd watchexec nodemon please "
            "calife gpg-agent aa-exec newrole schroot trickle cgexec cset nq tmate lldb rr libtool wine box64 winpty "
            "reflex concurrently onchange chokidar shell pwsh powershell"
        ),
        0,
    ),
    **dict.fromkeys(
        word_set(
            "timeout flock chroot taskset runuser su sg numactl setpriv setarch ssh autossh faketime gosu su-exec "
            "setuidgid envuidgid envdir logsave runcon setlock lckdo kcov sandbox-exec lxc-attach lxc-execute mosh "
            "withlock proot"
        ),
        1,
    ),
}
"""Programs that run the command in their arguments, with the number of operands before it. A rule for their beginning
does not say which command, and a denied command is found after them."""
FILE_FREE = word_set(
    ": true false echo printf test [ [[ let read export declare typeset local readonly unset set shift shopt return "
    "exit break continue wait kill sleep seq expr basename dirname which type hash pwd id whoami uname nproc tty jobs "
    "fg bg disown umask ulimit getopts trap times ps pgrep pkill pidof killall clear uptime free groups logname yes "
    "factor uuidgen"
)
"""Programs that open no file, whatever their arguments are."""
SHELL_TOOLS = word_set(
    # Builtins and coreutils.
    ": true false cd pushd popd dirs pwd set shift shopt umask ulimit jobs fg bg disown kill type which whereis "
    "whatis apropos help history return exit break continue times suspend logout caller enable hash unalias getopts "
    "wait arch b2sum base32 base64 basename basenc chcon chgrp chmod chown cksum comm csplit cut date df dir "
    "dircolors dirname du echo expand expr factor fmt fold groups head hostid hostname id join link ln logname ls "
    "md5sum mkdir mkfifo mknod mktemp nl nproc numfmt od paste pathchk pinky pr printenv printf ptx readlink "
    "realpath rm rmdir seq sha1sum sha224sum sha256sum sha384sum sha512sum shred shuf sleep stat stty sum sync tac "
    "tail tee touch tr truncate tsort tty uname unexpand uniq unlink users vdir wc who whoami yes cat cp mv dd "
    "install sort split test [ "
    # Text and files.
    "grep egrep fgrep rg ag ack zgrep xzgrep bzgrep find fd fdfind locate plocate updatedb tree file diff cmp "
    "colordiff patch strings hexdump xxd column col rev look cal bc jq yq xq xmllint csvcut csvgrep csvlook gzip "
    "gunzip zcat bzip2 bunzip2 bzcat xz unxz xzcat zstd unzstd lz4 zip unzip unrar 7z 7za ar ranlib nm objdump "
    "readelf ldd size strip addr2line cpio exa eza lsd bat batcat delta fzf cloc tokei scc wcstat iconv dos2unix "
    "unix2dos uuidgen openssl md5 shasum cscope ctags etags tldr info pandoc typos codespell vale aspell hunspell "
    "spell"
)
SYSTEM = word_set(
    # Processes and the system.
    "ps top htop btop pgrep pkill pidof killall lsof fuser free vmstat iostat mpstat sar uptime w last lastlog "
    "dmesg journalctl systemctl service loginctl hostnamectl timedatectl localectl mount umount lsblk blkid findmnt "
    "swapon swapoff losetup fdisk parted mkfs fsck sysctl lscpu lsmem lspci lsusb lsmod modinfo udevadm getent "
    "getconf locale localedef useradd userdel usermod groupadd groupdel passwd chsh chfn gpasswd visudo adduser "
    "addgroup deluser pstree renice skill snice tload pmap pwdx chattr lsattr getfacl setfacl logger clear reset "
    "tput tset script ss netstat ifconfig route arp ping ping6 traceroute tracepath mtr dig host nslookup whois "
    "nmcli iw iwconfig ethtool telnet ufw"
)
BUILDS = word_set(
    # Packages and versions.
    "apt apt-get apt-cache apt-file apt-mark apt-key aptitude dpkg dpkg-query dpkg-deb snap dnf yum microdnf rpm "
    "zypper pacman yay paru apk emerge brew port choco winget scoop pkg pkg_add xbps-install nix-env eopkg opkg pip "
    "pip3 pipdeptree gem cpan cpanm luarocks composer cargo rustup npm pnpm yarn bun bower conda mamba poetry uv "
    "pipenv pdm hatch rye go mix hex rebar3 cabal stack opam nuget dotnet vcpkg conan pre-commit asdf mise nvm fnm "
    "volta pyenv rbenv nodenv sdk "
    # Builds, tests and linters: a target or a file may have any name.
    "make gmake cmake ninja meson bazel bazelisk buck buck2 pants ant mvn mvnw gradle gradlew sbt task rake just "
    "scons waf nx turbo lerna rush vite webpack rollup parcel esbuild tsc eslint prettier stylelint biome jest "
    "vitest mocha ava tap cypress playwright pytest tox nox ruff black isort flake8 pylint mypy pyright bandit "
    "coverage golangci-lint gofmt goimports rustfmt rustc shellcheck shfmt hadolint yamllint markdownlint "
    "clang-format clang-tidy cppcheck gcc g++ cc c++ clang clang++ ld as cpp javac java kotlinc scalac protoc buf "
    "flutter dart swift swiftc xcodebuild autoconf automake libtoolize configure pkg-config ldconfig sphinx-build "
    "mkdocs hugo jekyll docusaurus typedoc"
)
"""Programs that run code of the working tree, or read all of it, whatever their arguments are."""
SERVICES = word_set(
    # Versions, services and clouds: `rm` is a subcommand of many.
    "helm hg svn bzr fossil jj cvs p4 git gitk tig lazygit gh glab hub arc git-lfs "
    "docker docker-compose podman buildah skopeo nerdctl crictl ctr kubectl oc k9s kustomize minikube kind k3d "
    "istioctl terraform tofu terragrunt pulumi cdk sam serverless packer vault consul nomad aws gcloud gsutil bq az "
    "doctl linode-cli hcloud heroku fly flyctl vercel netlify wrangler firebase supabase railway rclone s3cmd s4cmd "
    "mc restic borg duplicity rsnapshot ipfs dvc mlflow wandb ollama redis-cli memcached mongo mongosh mysql "
    "mysqldump psql pg_dump pg_restore createdb dropdb sqlite3 influx cqlsh curl wget http https httpie xh aria2c "
    "ab wrk hey k6 vegeta youtube-dl yt-dlp ffmpeg ffprobe convert magick identify gpg gpg2 pass age sops "
    "ssh-keygen ssh-add ssh-copy-id ssh-keyscan scp sftp code cursor subl open xdg-open pbcopy pbpaste xclip xsel "
    "notify-send say claude parley tmux vim vi nvim nano emacs crontab atq atrm ip tc iptables nft man "
)
INERT = SHELL_TOOLS | SYSTEM | BUILDS | SERVICES
NAMES_NO_TARGET = (SYSTEM | BUILDS | SERVICES) - word_set(
    "curl wget http https httpie xh aria2c youtube-dl yt-dlp ffmpeg convert magick gpg gpg2 age sops scp sftp rclone "
    "s3cmd s4cmd mc aws gsutil gcloud restic borg duplicity rsnapshot ssh-keygen vim vi nvim nano emacs crontab script "
    "chattr setfacl visudo logger pg_dump mysqldump sqlite3 gcc g++ cc c++ clang clang++ ld as"
)
"""Programs that write no file that an argument names, or only in the way of a build."""
