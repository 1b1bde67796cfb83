package main

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/google/go-cmp/cmp"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	"github.com/skein-feed/skein/cmd/skein/internal/flags"
)

// TestConfigurationReferenceIsUpToDate compares docs/configuration.md with the code. `task
// generate` writes that page.
func TestConfigurationReferenceIsUpToDate(t *testing.T) {
	want, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}

	var got, errOut bytes.Buffer
	if code := run([]string{"config", "--reference"}, &command.Streams{Out: &got, Err: &errOut}); code != exitOK {
		t.Fatalf("skein config --reference: got exit code %d and %s, want %d", code, errOut.String(), exitOK)
	}
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Errorf("docs/configuration.md (-page +code); write it with `go tool -modfile=tools.mod task generate`:\n%s", diff)
	}
}

// writeCounter counts how often it is written to.
type writeCounter struct {
	bytes.Buffer

	writes int
}

// Write is part of [io.Writer].
func (w *writeCounter) Write(p []byte) (int, error) {
	w.writes++
	return w.Buffer.Write(p)
}

// TestConfigIsPrintedInOneWrite keeps `skein config | head` from ending the command by SIGPIPE.
func TestConfigIsPrintedInOneWrite(t *testing.T) {
	var out writeCounter
	var errOut bytes.Buffer
	if code := run([]string{"config"}, &command.Streams{Out: &out, Err: &errOut}); code != exitOK {
		t.Fatalf("skein config: got exit code %d and %s, want %d", code, errOut.String(), exitOK)
	}
	if out.writes != 1 {
		t.Errorf("got %d writes of %d bytes, want 1 write", out.writes, out.Len())
	}
}

// TestSecretsAreHiddenInPrintedValues demands that passwords, tokens and keys in URLs are replaced,
// and nothing else.
func TestSecretsAreHiddenInPrintedValues(t *testing.T) {
	for _, c := range []struct {
		name, value, want string
	}{
		{"URL without secrets", "nats://a:4222", "nats://a:4222"},
		{"password and token", "nats://ann:s3cret@a:4222,nats://t0ken@b", "nats://ann:hidden@a:4222,nats://hidden@b"},
		{"parameters without secrets", "s3://bucket/prefix?region=eu&insecure=true", "s3://bucket/prefix?region=eu&insecure=true"},
		{"key in a parameter", "s3://bucket?secret_key=abc&region=eu", "s3://bucket?secret_key=hidden&region=eu"},
		{"path", "/var/lib/skein", "/var/lib/skein"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := hideSecrets(c.value); got != c.want {
				t.Errorf("hideSecrets(%q): got %q, want %q", c.value, got, c.want)
			}
		})
	}
}

// TestPrintedByteSizeIsReadBack demands that a printed size is read as the same size.
func TestPrintedByteSizeIsReadBack(t *testing.T) {
	for _, size := range []flags.ByteSize{0, 1, 1023, 1 << 10, 1<<20 + 1, 512 << 20, 3 << 30} {
		var readBack flags.ByteSize
		if err := readBack.UnmarshalText([]byte(size.String())); err != nil || readBack != size {
			t.Errorf("the size %d is printed as %s: got %d, %v, want the same size", int64(size), size, int64(readBack), err)
		}
	}
}

// TestCompletionOffersKnownCommandsAndFlags demands that shells are offered exactly the commands
// and flags that the parser knows.
func TestCompletionOffersKnownCommandsAndFlags(t *testing.T) {
	parser, err := kong.New(&cli{})
	if err != nil {
		t.Fatal(err)
	}

	for _, c := range []struct {
		name, line, want string
	}{
		{"beginning of a command", "se", "serve"},
		{"beginning of several subcommands", "replay r", "rebuild repair rollback"},
		{"value of a flag", "serve --log-format ", "json text"},
		{"flag after another one", "serve --log-level=debug --archive-", "--archive-every"},
		{"value that the parser does not know", "serve --data ", ""},
		{"command after a flag", "--config x.yaml tok", "token"},
		{"all values of an argument", "completion ", "bash fish zsh"},
		{"command after an unknown word", "nonsense ser", "serve"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := strings.Join(complete(parser.Model.Node, strings.Split(c.line, " ")), " ")
			if got != c.want {
				t.Errorf("complete %q: got %q, want %q", c.line, got, c.want)
			}
		})
	}

	t.Run("empty line", func(t *testing.T) {
		if got := complete(parser.Model.Node, nil); !slices.Contains(got, "finalize-upgrade") {
			t.Errorf("got %q, want finalize-upgrade among them", got)
		}
	})
}
