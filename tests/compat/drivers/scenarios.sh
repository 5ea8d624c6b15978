#!/bin/sh
# A client in plain shell: a prompt, answers to permission requests, the result. Half a line is not a message.
folder=$(mktemp -d)
mkfifo "$folder/in" "$folder/out"
"$1" --print --verbose --input-format stream-json --output-format stream-json <"$folder/in" >"$folder/out" &
exec 3>"$folder/in" 4<"$folder/out"
rm -r "$folder"
trap '' PIPE
printf '%s\n' '{"type":"user","message":{"role":"user","content":"Clean the project."}}' >&3
while IFS= read -r line <&4; do
    case $line in
    '{"type":"control_request"'*)
        id=$(printf '%s\n' "$line" | sed 's/.*"request_id":"\([^"]*\)".*/\1/')
        case $line in
        *'"command":"rm -r build"'*) answer='{"behavior":"allow"}' ;;
        *) answer='{"behavior":"deny","message":"no"}' ;;
        esac
        printf '%s%s%s\n' '{"type":"control_response","response":{"subtype":"success","request_id":"'"$id" \
            '","response":' "$answer}}" >&3
        ;;
    '{"type":"result"'*)
        printf '%s\n' "$line" | sed 's/.*"result":"\([^"]*\)".*/\1/'
        exec 3>&-
        ;;
    esac
done
wait $!
echo "exit code $?"
