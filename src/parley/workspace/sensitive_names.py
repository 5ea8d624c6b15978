"""Names of files that need more than a place in a working directory: files that run later, and files with credentials.

    is_protected("/w/.git/hooks/pre-commit")    # writing it needs approval, and commands in the sandbox cannot
    holds_keys("/w/.ssh/id_rsa")                # reading it needs approval, and no search shows what is in it

Both match names at any depth, in any case and Unicode spelling. A repository with another name than `.git` is known by
what it contains (`is_git_internal`). Permissions, file tools, searches, memory files and the
sandbox use these two lists and no others.

Protected files run later, or decide what runs: git's own files, CI definitions, files that shells, interpreters and
environments load at their start, settings of editors, package managers and agents, hooks. Not protected is what a
program of the project reads as data or runs as its own code: `.env`, `Makefile`, `package.json`.

Runs also in the bare interpreters of the sandbox, so it uses only the standard library.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from itertools import pairwise


def word_set(text: str) -> frozenset[str]:
    """A table of words, written as one text."""
    return frozenset(text.split())


def pair_set(paths: Iterable[str]) -> frozenset[tuple[str, str]]:
    """The last two parts of each path."""
    return frozenset((parts[-2], parts[-1]) for parts in (path.split("/") for path in paths))


PROTECTED_FOLDERS = word_set(
    # version control, editors, agents
    ".git .hg .svn .jj .githooks .husky .vscode .vscode-server .idea .fleet .zed .nova .vim .emacs.d .devcontainer "
    ".agents .claude .parley .cursor .codex .gemini .continue .windsurf .roo .cline .kilocode .opencode .amazonq .kiro "
    ".junie .qwen .trae .crush .goose "
    # CI
    ".github .circleci .gitlab .gitea .forgejo .woodpecker .buildkite .teamcity .semaphore .tekton .harness .builds "
    ".azure-pipelines "
    # keys, package managers, environments
    ".ssh .gnupg .aws .azure .kube .docker .cargo .yarn .mvn .pip .direnv .mise .ipython .oh-my-zsh activate.d "
    "deactivate.d"
)
PROTECTED_FILES = word_set(
    # version control and hooks
    ".gitconfig .gitmodules .gitattributes .git-credentials .hgrc .pre-commit-config.yaml .pre-commit-config.yml "
    "lefthook.yml lefthook.yaml .lefthook.yml .lefthook.yaml lefthook-local.yml .overcommit.yml .huskyrc "
    ".huskyrc.json .huskyrc.js .simple-git-hooks.json .simple-git-hooks.js .simple-git-hooks.cjs "
    # CI
    ".gitlab-ci.yml .gitlab-ci.yaml .travis.yml .travis.yaml jenkinsfile azure-pipelines.yml azure-pipelines.yaml "
    ".azure-pipelines.yml .drone.yml .drone.yaml .drone.star .drone.jsonnet bitbucket-pipelines.yml appveyor.yml "
    ".appveyor.yml .woodpecker.yml .woodpecker.yaml cloudbuild.yaml cloudbuild.yml cloudbuild.json buildspec.yml "
    "buildspec.yaml .cirrus.yml .cirrus.yaml .cirrus.star wercker.yml .scrutinizer.yml codeship-services.yml "
    "codeship-steps.yml codemagic.yaml bitrise.yml .build.yml .buildkite.yml "
    # shells and environments
    ".bashrc .bash_profile .bash_login .bash_logout .bash_aliases .profile .inputrc .zshrc .zshenv .zprofile .zlogin "
    ".zlogout .kshrc .cshrc .tcshrc .login .logout .xinitrc .xprofile .xsession .xsessionrc .pam_environment .envrc "
    ".autoenv .autoenv.zsh .tool-versions mise.toml .mise.toml mise.local.toml .mise.local.toml .rtx.toml "
    "profile.ps1 microsoft.powershell_profile.ps1 .tmux.conf .screenrc crontab "
    # interpreters and their packages
    "sitecustomize.py usercustomize.py .pythonrc .pythonstartup .pdbrc .irbrc .pryrc .gemrc .rprofile .renviron "
    ".ghci .gdbinit .lldbinit .sqliterc .psqlrc .npmrc .yarnrc .yarnrc.yml .pnp.cjs .pnp.loader.mjs .pnpmfile.cjs "
    "bunfig.toml .bunfig.toml .pypirc pip.conf .condarc .mambarc .bazelrc .bazeliskrc gradle-wrapper.properties "
    "maven-wrapper.properties "
    # editors, agents and other programs
    ".vimrc .gvimrc .exrc .nvimrc .nvim.lua .lvimrc .ideavimrc .emacs .dir-locals.el .devcontainer.json .mcp.json "
    ".claude.json .aider.conf.yml .continuerc.json opencode.json opencode.jsonc .opencode.json .crush.json "
    ".ripgreprc .wgetrc .curlrc .netrc .pgpass authorized_keys known_hosts id_rsa id_dsa id_ecdsa id_ed25519"
)
PROTECTED_PAIRS = pair_set(
    word_set(
        ".config/git .config/fish .config/zsh .config/autostart .config/systemd .config/environment.d .config/direnv "
        ".config/mise .config/nvim .config/pip .config/powershell .julia/config .local/bin"
    )
)
"""A folder and its subfolder; the name of one alone is not specific enough."""
PROTECTED_PATTERNS = (
    (r"/(?:bin|scripts)/activate[^/]*", "`bin/activate*` and `Scripts/activate*` of virtual environments"),
    (r"/(?:site|dist)-packages/[^/]*\.pth", "`site-packages/*.pth`"),
    (r"/jenkinsfile[.-][^/]*", "`Jenkinsfile.*`"),
    (r"/[^/]+\.(?:code-workspace|sublime-project)", "`*.code-workspace`, `*.sublime-project`"),
    (r"/(?:\.gitlab-ci|azure-pipelines|cloudbuild|buildspec)[.-][^/]*\.(?:ya?ml|json)", "variants of CI definitions"),
)
"""Names that are not one fixed word, each as a pattern and in words."""
ACTIVATE = "activate"
"""What the scripts of an environment begin with. A command in the sandbox may create them with an environment."""
EXEMPT_PAIRS = ((".claude", "worktrees"),)
"""Folders below protected ones that are not protected."""

KEY_NAMES = word_set(
    ".ssh .gnupg .password-store .netrc _netrc .authinfo .authinfo.gpg .git-credentials .pgpass .my.cnf .mylogin.cnf "
    "id_rsa id_dsa id_ecdsa id_ecdsa_sk id_ed25519 id_ed25519_sk .npmrc .pypirc .dockercfg .vault-token .vault_pass "
    ".aws .azure .kube .oci .aliyun .bluemix .fly .terraformrc .s3cfg .boto .passwd-s3fs .databrickscfg .snowsql "
    ".msmtprc .fetchmailrc .rclone.conf .mozilla .thunderbird .librewolf .electrum .bitcoin .ethereum .monero "
    ".bash_history .zsh_history .zhistory .histfile .sh_history .ksh_history fish_history .python_history "
    ".psql_history .mysql_history .mariadb_history .sqlite_history .node_repl_history .rediscli_history .dbshell "
    ".irb_history .pry_history .viminfo .lesshst .credentials.json .claude.json mcp-logins.json"
)
"""Files and folders with credentials."""
KEY_PATHS = word_set(
    ".docker/config.json .cargo/credentials .cargo/credentials.toml .gem/credentials .composer/auth.json "
    ".config/composer/auth.json .nuget/nuget.config .config/nuget/nuget.config .m2/settings.xml "
    ".m2/settings-security.xml .gradle/gradle.properties .config/pypoetry/auth.toml .config/containers/auth.json "
    ".terraform.d/credentials.tfrc.json .pulumi/credentials.json .cf/config.json .kaggle/kaggle.json "
    ".cache/huggingface/token .dbt/profiles.yml .codex/auth.json .gemini/oauth_creds.json "
    ".local/share/opencode/auth.json .config/claude/config.json .config/gh .config/glab-cli .config/hub "
    ".config/github-copilot .config/gcloud .config/doctl .config/hcloud .config/scw .config/linode-cli "
    ".config/argocd .config/netlify .config/stripe .config/rclone .config/op .config/sops .config/age "
    ".config/gopass .config/keepassxc .config/solana .config/google-chrome .config/chromium .config/bravesoftware "
    ".config/microsoft-edge .config/vivaldi .config/opera .local/share/keyrings .local/share/kwalletd "
    ".local/share/python_keyring .local/share/atuin library/keychains"
)
"""The same below the home folder. Elsewhere, their last two parts count."""
KEY_PAIRS = pair_set(KEY_PATHS)

INVISIBLE = "[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff]"
"""Characters that some file systems ignore: `.g\u200cit` is `.git` to them."""
_PROTECTED_NAMES = PROTECTED_FOLDERS | PROTECTED_FILES
_PROTECTED_PATTERN = f"(?:{'|'.join(pattern for pattern, _ in PROTECTED_PATTERNS)})(?:/|$)"


def normalize_name(text: str) -> str:
    """The common form of all spellings that some file system takes for the same name."""
    if text.isascii():
        return text.lower()
    import unicodedata

    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", re.sub(INVISIBLE, "", text)).casefold())


def is_protected(path: str) -> bool:
    """Whether writing an absolute path needs approval."""
    plain = normalize_name(path)
    parts = plain.split("/")
    pairs = list(pairwise(parts))
    exempt_at = next((number for number, pair in enumerate(pairs) if pair in EXEMPT_PAIRS), None)
    if exempt_at is not None:
        return is_protected("/".join(parts[:exempt_at] + parts[exempt_at + 2 :]))
    return (
        not _PROTECTED_NAMES.isdisjoint(parts)
        or not PROTECTED_PAIRS.isdisjoint(pairs)
        or re.search(_PROTECTED_PATTERN, plain) is not None
    )


GIT_RESTRICTED = ("config", "config.worktree", "hooks", "commondir", "gitdir")
"""Files of a repository that name programs or other repositories."""
GIT_MARKS = ("HEAD", "objects", "refs", "commondir")
GIT_NAMES = frozenset(map(normalize_name, GIT_MARKS))


def is_git_directory(names: Collection[str]) -> bool:
    """Whether git takes a folder with these names for a repository, or for the part of one that a worktree has."""
    return "HEAD" in names and ("commondir" in names or ("objects" in names and "refs" in names))


def is_git_internal(path: str, exists: Callable[[str], bool], created: Collection[str] = ()) -> bool:
    """Whether writing a path changes what a repository of any name runs, or makes a folder into a repository.

    `created` are other paths that are written along with it.
    """
    parts = normalize_name(path).split("/")
    for index, name in enumerate(parts):
        if name in GIT_RESTRICTED or name in GIT_NAMES:
            # The names as they are on the disk: only the comparison ignores their case.
            folder = "/".join(path.split("/")[:index])
            present = {mark for mark in GIT_MARKS if exists(f"{folder}/{mark}")}
            added = {mark for mark in GIT_MARKS if f"{folder}/{mark}" in created or normalize_name(mark) == name}
            if is_git_directory(present | added) and (name in GIT_RESTRICTED or not is_git_directory(present)):
                return True
    return False


def is_protected_in(folder: str, name: str) -> bool:
    """Whether a name is protected in a folder with this name. Both are normalized."""
    return (
        name in _PROTECTED_NAMES
        or (folder, name) in PROTECTED_PAIRS
        or re.fullmatch(_PROTECTED_PATTERN, f"/{folder}/{name}") is not None
        or re.fullmatch(_PROTECTED_PATTERN, f"/{name}") is not None
    )


def holds_keys(path: str) -> bool:
    """Whether reading a path needs approval even in a working directory."""
    parts = normalize_name(path).split("/")
    return not KEY_NAMES.isdisjoint(parts) or not KEY_PAIRS.isdisjoint(pairwise(parts))
