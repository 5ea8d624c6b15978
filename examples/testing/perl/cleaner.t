# Tests of Cleaner.pm, without a model and without a network: `prove cleaner.t`.
use strict;
use warnings;
use File::Basename qw(dirname);
use File::Temp qw(tempdir);
use Test::More;
use lib dirname(__FILE__);
use Cleaner;

my $folder = tempdir(CLEANUP => 1);

# Run the application with a fake `claude` that plays a scenario.
sub play {
    my ($name) = @_;
    my $scenario = dirname(__FILE__) . "/../scenarios/$name.toml";
    my @install = ($ENV{PARLEY} // 'parley', 'fake', $scenario, '--install', "$folder/$name");
    open(my $said, '-|', @install) or die "parley cannot be started";
    my @lines = <$said>;
    close $said or die "@install failed";
    return Cleaner::clean("$folder/$name");
}

is_deeply([play('clean')], ['Cleaned.', []], 'the build directory may be deleted');

my ($answer, $denials) = play('dangerous');
is($answer, 'I may not delete everything.', 'nothing else may be deleted');
is($denials->[0]{tool_input}{command}, 'rm -r /', 'the denial is in the result');

is((play('rough'))[0], 'Done.', 'a rough connection is survived');
is((play('crash'))[0], 'failed: exit code 3', 'a crash is reported');

done_testing();
