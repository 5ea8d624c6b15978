"""Programs that only read, each with the flags that are allowed.

Left out on purpose are flags that write (`sort -o`, `tree -o`, `file -C`), that run another program
(`sort --compress-program`, `rg --pre`, `rg -z`, `diff -l`), and those that open a socket or resolve a name
(`hostname -f`). Programs that need more than a list of flags are in special.py and git.py.
"""

from __future__ import annotations

from parley.permissions.shell.arguments import Program
from parley.permissions.shell.change_directory import CD

GREP = Program(
    short="EFGPivwxyclLoqshHnbZzraRITUe:f:m:A:B:C:d:D:",
    long="extended-regexp fixed-strings basic-regexp perl-regexp regexp= file= ignore-case no-ignore-case word-regexp "
    "line-regexp null-data no-messages invert-match max-count= byte-offset line-number line-buffered with-filename "
    "no-filename label= only-matching quiet silent binary-files= text directories= devices= recursive "
    "dereference-recursive include= exclude= exclude-from= exclude-dir= files-without-match files-with-matches count "
    "initial-tab null before-context= after-context= context= color? colour? binary version help group-separator= "
    "no-group-separator",
    operands="pattern",
    globs="anywhere",
    number_flags=True,
    pattern_flags="e f regexp file",
    recursive_flags="r R recursive dereference-recursive",
    file_flags="f file exclude-from",
)
DIGEST = Program(
    short="bctwz",
    long="binary check tag text zero ignore-missing quiet status strict warn version help",
    globs="anywhere",
)
ANY_TEXT = Program(operands="text", globs="anywhere")
LINES = Program(
    short="c:n:qvz", long="bytes= lines= quiet silent verbose zero-terminated", number_flags=True, globs="anywhere"
)

READERS = {
    "ls": Program(
        short="aAbBcCdDfFgGhHiI:klLmnNopqQrRsStT:uUvw:xXZ1",
        long="all almost-all author escape block-size= ignore-backups color? directory dired classify? file-type "
        "format= full-time group-directories-first no-group human-readable si dereference-command-line "
        "dereference-command-line-symlink-to-dir hide= hyperlink? indicator-style= inode ignore= kibibytes "
        "dereference numeric-uid-gid literal hide-control-chars show-control-chars quote-name quoting-style= reverse "
        "recursive size sort= time= time-style= tabsize= width= context zero version help",
        globs="anywhere",
    ),
    "cat": Program(
        short="AbeEnstTuv",
        long="show-all number-nonblank show-ends number squeeze-blank show-tabs show-nonprinting version help",
        globs="anywhere",
    ),
    "pwd": Program(short="LP", long="logical physical", max_operands=0),
    "head": LINES,
    "tail": Program(
        short="c:fFn:qs:vz",
        long="bytes= follow? lines= max-unchanged-stats= pid= quiet silent retry sleep-interval= verbose "
        "zero-terminated",
        number_flags=True,
        globs="anywhere",
    ),
    "grep": GREP,
    "egrep": GREP,
    "fgrep": GREP,
    "rg": Program(
        short="iSsvwxFcloqnNHIUPLpu.0ae:g:t:T:A:B:C:m:d:M:j:r:E:f:",
        long="ignore-case smart-case case-sensitive invert-match word-regexp line-regexp fixed-strings count "
        "count-matches files-with-matches files-without-match files only-matching quiet line-number no-line-number "
        "with-filename no-filename multiline multiline-dotall pcre2 follow pretty unrestricted hidden no-hidden text "
        "null regexp= glob= iglob= type= type-not= type-list after-context= before-context= context= max-count= "
        "max-depth= maxdepth= max-columns= max-columns-preview threads= replace= encoding= file= heading no-heading "
        "color= colors= column no-column no-ignore no-ignore-vcs no-ignore-parent no-messages sort= sortr= stats json "
        "trim vimgrep passthru crlf no-config max-filesize= glob-case-insensitive one-file-system debug "
        "context-separator= field-match-separator= byte-offset path-separator= version help",
        operands="pattern",
        pattern_flags="e f regexp file files type-list",
        recursive_flags="*",
        file_flags="f file",
    ),
    "wc": Program(short="clmwL", long="bytes chars lines words max-line-length total=", globs="anywhere"),
    "which": Program(short="as", operands="names"),
    "type": Program(short="afptP", operands="names"),
    "diff": Program(
        short="qrNabBwiEtTyusdpeC:U:cW:x:I:F:Z",
        long="brief recursive new-file text ignore-space-change ignore-all-space ignore-blank-lines ignore-case "
        "ignore-tab-expansion ignore-trailing-space expand-tabs initial-tab side-by-side unified? context? "
        "report-identical-files minimal show-c-function color? width= exclude= suppress-common-lines "
        "no-dereference strip-trailing-cr label= normal left-column speed-large-files version help",
    ),
    "cmp": Program(short="bin:ls", long="print-bytes bytes= verbose quiet silent ignore-initial="),
    "comm": Program(short="123z", long="check-order nocheck-order output-delimiter= total zero-terminated"),
    "stat": Program(
        short="Lftc:", long="dereference file-system terse format= printf= cached= version", globs="anywhere"
    ),
    "du": Program(
        short="abcd:B:DhHklLmPsSt:xX:0",
        long="all apparent-size block-size= bytes total dereference-args max-depth= human-readable inodes dereference "
        "no-dereference separate-dirs si summarize threshold= time? time-style= exclude= exclude-from= "
        "one-file-system null",
        file_flags="X exclude-from",
        globs="anywhere",
    ),
    "df": Program(
        short="ahHiklPTt:x:B:",
        long="all block-size= human-readable si inodes local portability output? print-type type= exclude-type= total",
    ),
    "cd": CD,
    "file": Program(
        short="bihkLNnr0F:",
        long="brief mime mime-type mime-encoding keep-going dereference no-dereference no-pad raw separator= print0 "
        "version help extension",
        globs="anywhere",
    ),
    "basename": Program(short="as:z", long="multiple suffix= zero", operands="text", globs="anywhere"),
    "dirname": Program(short="z", long="zero", operands="text", globs="anywhere"),
    "realpath": Program(
        short="eEmLPqsz",
        long="canonicalize canonicalize-existing canonicalize-missing logical physical quiet strip no-symlinks zero "
        "relative-to= relative-base=",
        file_flags="relative-to relative-base",
    ),
    "readlink": Program(
        short="fenmqsvz",
        long="canonicalize canonicalize-existing canonicalize-missing no-newline quiet silent verbose zero",
    ),
    "sort": Program(
        short="bdfghiMnRrVcCmsuzk:t:S:",
        long="ignore-leading-blanks dictionary-order ignore-case general-numeric-sort human-numeric-sort "
        "ignore-nonprinting month-sort numeric-sort random-sort reverse sort= version-sort check? merge stable unique "
        "zero-terminated key= field-separator= buffer-size= parallel= batch-size= debug version help",
    ),
    "uniq": Program(
        short="cdDiuzf:s:w:",
        long="count repeated all-repeated? skip-fields= group? ignore-case skip-chars= unique zero-terminated "
        "check-chars=",
        max_operands=1,
        globs="nowhere",
    ),
    "cut": Program(
        short="b:c:d:f:nsz",
        long="bytes= characters= delimiter= fields= only-delimited output-delimiter= complement zero-terminated",
        globs="anywhere",
    ),
    "tr": Program(
        short="cCdst", long="complement delete squeeze-repeats truncate-set1", operands="text", globs="nowhere"
    ),
    "paste": Program(short="d:sz", long="delimiters= serial zero-terminated"),
    "fold": Program(short="bsw:", long="bytes spaces width="),
    "column": Program(short="ts:o:c:xN:R:JnH:", long="table separator= output-separator= table-columns= fillrows json"),
    "nl": Program(short="b:d:f:h:i:l:n:ps:v:w:", long="body-numbering= number-format= number-width= starting-line="),
    "tac": Program(short="brs:", long="before regex separator=", globs="anywhere"),
    "rev": Program(),
    "seq": Program(short="f:s:w", long="format= separator= equal-width", operands="text", number_flags=True),
    "true": ANY_TEXT,
    "false": ANY_TEXT,
    "id": Program(short="agGnruzZ", long="group groups name real user zero context", max_operands=0),
    "whoami": Program(max_operands=0),
    "groups": Program(max_operands=0),
    "hostname": Program(short="s", long="short", max_operands=0),
    "uname": Program(
        short="asnrvmpio",
        long="all kernel-name nodename kernel-release kernel-version machine processor hardware-platform "
        "operating-system",
        max_operands=0,
    ),
    "arch": Program(max_operands=0),
    "tty": Program(short="s", max_operands=0),
    "od": Program(
        short="A:bcdDeFhHiIj:lLN:oOsS:t:vw::xX",
        long="address-radix= endian= skip-bytes= read-bytes= strings? format= output-duplicates width?",
    ),
    "hexdump": Program(short="bcCdon:s:vx", long="canonical length= skip= no-squeezing"),
    "strings": Program(
        short="afn:t:e:wo", long="all print-file-name bytes= radix= encoding=", number_flags=True, list_prefix="@"
    ),
    "tree": Program(
        short="adfilpsughDFQNqnrtcUvCASxJXL:P:I:",
        long="dirsfirst noreport gitignore prune matchdirs ignore-case du si inodes device metafirst filesfirst "
        "sort= filelimit= fromfile charset= timefmt=",
    ),
    "free": Program(short="bkmghltwvs:c:", long="bytes kilo mega giga human si lohi total wide", max_operands=0),
    "uptime": Program(short="psV", long="pretty since version", max_operands=0),
    "nproc": Program(long="all ignore=", max_operands=0),
    "base64": Program(short="dw:i", long="decode wrap= ignore-garbage"),
    "cksum": Program(short="a:l:cz", long="algorithm= length= check tag untagged zero base64 raw"),
    **dict.fromkeys(
        ("md5sum", "sha1sum", "sha224sum", "sha256sum", "sha384sum", "sha512sum", "b2sum", "shasum"), DIGEST
    ),
}

# Complete commands of programs that are otherwise unknown. Not npm, yarn, pnpm, cargo or go: the program that prints
# their version may come from the working tree (CVE-2025-59828).
VERSIONS = frozenset(
    (name, flag)
    for names, flags in (
        ("python python3 python3.11 python3.12 python3.13 pip pip3", "--version -V"),
        ("node nodejs", "--version -v"),
        ("ruby perl php", "--version -v"),
        ("git gcc g++ clang make cmake bash rg jq curl tar docker", "--version"),
        ("java", "-version --version"),
    )
    for name in names.split()
    for flag in flags.split()
)
