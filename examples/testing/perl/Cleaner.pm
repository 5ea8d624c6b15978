# An application: an agent that cleans a project. It may delete the directory `build`, and nothing else.
# Perl has no SDK; the protocol is JSON lines.
package Cleaner;
use strict;
use warnings;
use IPC::Open2;
use JSON::PP;

my $json = JSON::PP->new->utf8->canonical;

# What the agent may do.
sub decide {
    my ($tool, $input) = @_;
    return { behavior => 'allow', updatedInput => $input } if $tool eq 'Bash' && $input->{command} eq 'rm -r build';
    return { behavior => 'deny', message => 'only the build directory may be deleted' };
}

# Clean the project: what the agent answers, and the calls that were denied.
sub clean {
    my ($claude) = @_;
    my @command = ($claude, qw(--print --verbose --input-format stream-json --output-format stream-json));
    my $pid = open2(my $out, my $in, @command, qw(--permission-prompt-tool stdio));
    local $SIG{PIPE} = 'IGNORE';
    my $send = sub { print $in $json->encode($_[0]), "\n"; $in->flush };
    $send->({ type => 'user', message => { role => 'user', content => 'Clean the project.' } });
    my $result;
    while (my $line = <$out>) {
        my $message = eval { $json->decode($line) };
        next unless ref $message eq 'HASH';    # half a line: the exit code says why
        if ($message->{type} eq 'control_request') {
            my $request = $message->{request};
            my $answer = decide($request->{tool_name}, $request->{input});
            my %response = (subtype => 'success', request_id => $message->{request_id}, response => $answer);
            $send->({ type => 'control_response', response => \%response });
        }
        elsif ($message->{type} eq 'result') {
            $result = $message;
            close $in;
        }
    }
    waitpid $pid, 0;
    my $code = $? >> 8;
    return ("failed: exit code $code", []) if $code || !$result;
    return ($result->{result}, $result->{permission_denials});
}

1;
