# Run by a launcher (launcher.py): let the session go, forward signals to it, and exit as it does.
# $1 is the pid of the session; descriptor 3 is the connection. For dash only: other shells restart an interrupted read.
session=$1 code= interrupted=
exec </dev/null >/dev/null 2>&1
for signal in HUP INT QUIT ILL ABRT USR1 USR2 ALRM TERM CONT URG XCPU VTALRM PROF WINCH PWR; do
    trap "interrupted=1; kill -$signal $session" $signal
done
trap 'interrupted=1; kill -STOP $session; kill -STOP $$; kill -CONT $session' TSTP TTIN TTOU
echo go >&3
while :; do
    if read -r kind number <&3; then
        case $kind in
        code) code=$((number << 8)) ;;
        status) code=$number; break ;;
        esac
    elif [ -n "$interrupted" ]; then
        interrupted=
    else
        break # the server was killed, so how the session ended is unknown
    fi
done
signal=$((${code:-9} & 127))
if [ $signal -ne 0 ]; then
    ulimit -c 0 # the session has written the core file, if any
    trap - $signal
    kill -$signal $$
fi
exit $((code >> 8))
