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

var block = regexp.MustCompile("(?ms)^```(\\w*)\n(.*?)^```$")

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
			text, err := os.ReadFile(filepath.Join(top, "docs", name+".md"))
			if err != nil {
				t.Fatal(err)
			}
			// A command that called another service would prove nothing, and might do harm.
			for _, port := range []string{"7411", "6391", "7420"} {
				l, err := net.Listen("tcp", "127.0.0.1:"+port)
				if err != nil {
					t.Fatalf("the documents use port %s, which is taken: %v", port, err)
				}
				if err := l.Close(); err != nil {
					t.Fatal(err)
				}
			}
			var script, printed strings.Builder
			for _, b := range block.FindAllStringSubmatch(string(text), -1) {
				switch b[1] {
				case "sh":
					script.WriteString(b[2])
				case "text":
					printed.WriteString(b[2])
				}
			}
			out := runAsWritten(t, top, script.String())
			for _, line := range strings.Split(strings.TrimSpace(printed.String()), "\n") {
				if !strings.Contains(out, line) {
					t.Errorf("nothing printed %q", line)
				}
			}
			t.Logf("%d lines of shell went well\n%s", strings.Count(script.String(), "\n"), out)
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
	cmd.Stdout, cmd.Stderr = &out, &out
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "SKEIN_") && !strings.HasPrefix(v, "GOFLAGS=") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.Env = append(cmd.Env, "GIT_CONFIG_COUNT=2", "GIT_CONFIG_KEY_0=url."+top+".insteadOf",
		"GIT_CONFIG_VALUE_0=https://github.com/skein-feed/skein", "GIT_CONFIG_KEY_1=safe.directory", "GIT_CONFIG_VALUE_1=*")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	// Processes that a failed script leaves behind keep its output open.
	cmd.WaitDelay = 5 * time.Second
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	err := cmd.Wait()
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	if err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	return out.String()
}
