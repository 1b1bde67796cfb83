package main

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

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
		t.Fatal(errOut.String())
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Error("docs/configuration.md is of other flags: go tool -modfile=tools.mod task generate")
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
		t.Fatal(errOut.String())
	}
	if out.writes != 1 {
		t.Errorf("%d bytes were written in %d pieces, expected 1", out.Len(), out.writes)
	}
}

// TestSecretsAreHiddenInPrintedValues demands that passwords, tokens and keys in URLs are replaced,
// and nothing else.
func TestSecretsAreHiddenInPrintedValues(t *testing.T) {
	for value, want := range map[string]string{
		"nats://a:4222": "nats://a:4222",
		"nats://ann:s3cret@a:4222,nats://t0ken@b":    "nats://ann:hidden@a:4222,nats://hidden@b",
		"s3://bucket/prefix?region=eu&insecure=true": "s3://bucket/prefix?region=eu&insecure=true",
		"s3://bucket?secret_key=abc&region=eu":       "s3://bucket?secret_key=hidden&region=eu",
		"/var/lib/skein":                             "/var/lib/skein",
	} {
		if got := hideSecrets(value); got != want {
			t.Errorf("%s: %s, want %s", value, got, want)
		}
	}
}

// TestPrintedByteSizeIsReadBack demands that a printed size is read as the same size.
func TestPrintedByteSizeIsReadBack(t *testing.T) {
	for _, size := range []flags.ByteSize{0, 1, 1023, 1 << 10, 1<<20 + 1, 512 << 20, 3 << 30} {
		var again flags.ByteSize
		if err := again.UnmarshalText([]byte(size.String())); err != nil || again != size {
			t.Errorf("%d is printed as %s, read as %d, %v", int64(size), size, int64(again), err)
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
	for line, want := range map[string]string{
		"se":                                 "serve",
		"replay r":                           "rebuild repair rollback",
		"serve --log-format ":                "json text",
		"serve --log-level=debug --archive-": "--archive-every",
		"serve --data ":                      "",
		"--config x.yaml tok":                "token",
		"completion ":                        "bash fish zsh",
		"nonsense ser":                       "serve",
	} {
		if got := strings.Join(complete(parser.Model.Node, strings.Split(line, " ")), " "); got != want {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
	if all := complete(parser.Model.Node, nil); !slices.Contains(all, "finalize-upgrade") {
		t.Errorf("%v", all)
	}
}
