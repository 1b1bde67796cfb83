//go:build quickstart

package main

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// codeBlock matches a block of code in a document. Its groups are the language and the code.
var codeBlock = regexp.MustCompile("(?ms)^```(\\w*)\n(.*?)^```$")

// readCodeBlocks returns the commands of a document, which are its ```sh blocks, and what it says
// that they print, which are its ```text blocks.
func readCodeBlocks(t *testing.T, path string) (script, promised string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, groups := range codeBlock.FindAllStringSubmatch(string(text), -1) {
		language, code := groups[1], groups[2]
		switch language {
		case "sh":
			script += code
		case "text":
			promised += code
		}
	}
	return script, promised
}

// checkPortIsFree checks that nothing listens on a port of this machine.
func checkPortIsFree(t *testing.T, port string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:"+port)
	if err != nil {
		t.Fatalf("the documents use port %s, which is taken: %v", port, err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestQuickStartsPrintWhatTheyPromise runs every ```sh block of the documents unchanged, those of
// one document in one shell, in an empty directory, from a clone of this commit. Each line of a
// ```text block must be among what the commands print.
func TestQuickStartsPrintWhatTheyPromise(t *testing.T) {
	top, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"quickstart-app", "quickstart-data", "quickstart-operator", "request", "clients"} {
		t.Run(name, func(t *testing.T) {
			// A command that called another service would prove nothing, and might do harm.
			for _, port := range []string{"7411", "6391", "7420"} {
				checkPortIsFree(t, port)
			}

			script, promised := readCodeBlocks(t, filepath.Join(top, "docs", name+".md"))
			if script == "" {
				t.Fatalf("docs/%s.md has no commands, want some", name)
			}
			out := runAsWritten(t, top, script)
			for _, line := range strings.Split(strings.TrimSpace(promised), "\n") {
				if !strings.Contains(out, line) {
					t.Errorf("the commands do not print %q", line)
				}
			}
			t.Logf("ran %d lines of shell\n%s", strings.Count(script, "\n"), out)
		})
	}
}

// runAsWritten runs a script in an empty directory, where git clones this repository in place of
// the public one. It kills all processes that the script leaves behind, and returns what they
// printed.
func runAsWritten(t *testing.T, top, script string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail")
	cmd.Dir = t.TempDir()
	cmd.Stdin = strings.NewReader(script)
	var out bytes.Buffer
	cmd.Stdout = &out
	cmd.Stderr = &out

	// The variables of the test would change what the commands of a reader do.
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "SKEIN_") && !strings.HasPrefix(variable, "GOFLAGS=") {
			cmd.Env = append(cmd.Env, variable)
		}
	}
	// The clone may belong to another user than the one who runs the test, so git must trust it.
	cmd.Env = append(cmd.Env,
		"GIT_CONFIG_COUNT=2",
		"GIT_CONFIG_KEY_0=url."+top+".insteadOf",
		"GIT_CONFIG_VALUE_0=https://github.com/skein-feed/skein",
		"GIT_CONFIG_KEY_1=safe.directory",
		"GIT_CONFIG_VALUE_1=*",
	)

	// A process group of its own lets killGroup end everything that the script has started.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	killGroup := func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.Cancel = killGroup
	// Processes that a failed script leaves behind keep its output open.
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}

	err := cmd.Wait()
	_ = killGroup()
	if err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	return out.String()
}
