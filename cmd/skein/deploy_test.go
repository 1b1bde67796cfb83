package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"go.yaml.in/yaml/v3"
)

// deployDir has the files for operators that these tests read.
const deployDir = "../../docs/deploy"

// checkParses checks that the program accepts a command line.
func checkParses(t *testing.T, args []string) {
	t.Helper()
	parser, err := kong.New(&cli{}, kong.DefaultEnvars("SKEIN"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := parser.Parse(args); err != nil {
		t.Errorf("skein %s: got %v, want no error", strings.Join(args, " "), err)
	}
}

// readDeployed returns a file of docs/deploy.
func readDeployed(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(deployDir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// mustFind returns what the group of a pattern matches in a file of docs/deploy.
func mustFind(t *testing.T, name, pattern string) string {
	t.Helper()
	match := regexp.MustCompile(pattern).FindStringSubmatch(readDeployed(t, name))
	if match == nil {
		t.Fatalf("%s: got no line that matches %s, want one", name, pattern)
	}
	return match[1]
}

// mustFindList returns the JSON list that the group of a pattern matches in a file of docs/deploy.
func mustFindList(t *testing.T, name, pattern string) (list []string) {
	t.Helper()
	text := mustFind(t, name, pattern)
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		t.Fatalf("%s: %s: got %v, want a list", name, text, err)
	}
	return list
}

// checkDeployed checks that a file of docs/deploy contains all of these lines, or parts of lines.
func checkDeployed(t *testing.T, name string, lines ...string) {
	t.Helper()
	text := readDeployed(t, name)
	for _, line := range lines {
		if !strings.Contains(text, line) {
			t.Errorf("%s: got no line %q, want one", name, line)
		}
	}
}

// serveVariables returns the environment variables that `skein serve` reads.
func serveVariables(t *testing.T) (names []string) {
	t.Helper()
	parser, err := kong.New(&cli{}, kong.DefaultEnvars("SKEIN"))
	if err != nil {
		t.Fatal(err)
	}

	for _, cmd := range parser.Model.Children {
		if cmd.Name != "serve" {
			continue
		}
		for _, f := range cmd.Flags {
			names = append(names, f.Envs...)
		}
	}
	return names
}

// checkVolumeOwners checks that every named volume covers a directory of the image that belongs to
// the user of the service. Docker gives other volumes to root.
func checkVolumeOwners(t *testing.T, service, image string, volumes []string) {
	t.Helper()
	dockerfile, ok := map[string]string{"skein": "Dockerfile", "skein-nats": "nats/Dockerfile"}[image]
	if !ok {
		t.Errorf("%s has the image %q, want one of which there is a Dockerfile here", service, image)
		return
	}

	text := readDeployed(t, dockerfile)
	for _, volume := range volumes {
		source, path, _ := strings.Cut(volume, ":")
		if strings.HasPrefix(source, ".") {
			continue // this is no volume, but a file of this folder
		}
		owned := regexp.MustCompile(`(?m)^COPY .*--chown=65532:65532 \S+ ` + regexp.QuoteMeta(path) + `$`)
		if !owned.MatchString(text) {
			t.Errorf("%s: the volume %s would belong to root, because %s makes no directory %s of user 65532", service, source, dockerfile, path)
		}
	}
}

// composeFile is the part of the Compose file that the test reads.
type composeFile struct {
	Services map[string]composeService `yaml:"services"`
	Volumes  map[string]any            `yaml:"volumes"`
}

type composeService struct {
	Image       string            `yaml:"image"`
	Build       string            `yaml:"build"`
	Command     []string          `yaml:"command"`
	Environment map[string]string `yaml:"environment"`
	Ports       []string          `yaml:"ports"`
	Volumes     []string          `yaml:"volumes"`
	ReadOnly    bool              `yaml:"read_only"`
	User        string            `yaml:"user"`
}

// TestComposeFileFitsTheProgram demands that the Compose file runs commands of this program with
// variables that the program reads, that each process has a volume of its own, that no port is open
// to other machines, and that the NATS servers sync what they acknowledge.
func TestComposeFileFitsTheProgram(t *testing.T) {
	var file composeFile
	if err := yaml.Unmarshal([]byte(readDeployed(t, "compose.yaml")), &file); err != nil {
		t.Fatal(err)
	}

	variables := serveVariables(t)
	natsServers := 0
	processes := 0
	for name, s := range file.Services {
		if !s.ReadOnly || s.User != "65532:65532" {
			t.Errorf("%s: got read_only %t and user %q, want a read-only root directory and user 65532:65532", name, s.ReadOnly, s.User)
		}
		for _, port := range s.Ports {
			if !strings.HasPrefix(port, "127.0.0.1:") {
				t.Errorf("%s: got port %s, want one that is open to this machine only", name, port)
			}
		}

		checkVolumeOwners(t, name, s.Image, s.Volumes)
		if want := name + ":/data"; !slices.Contains(s.Volumes, want) {
			t.Errorf("%s: got volumes %v, want %s among them", name, s.Volumes, want)
		}
		if _, ok := file.Volumes[name]; !ok {
			t.Errorf("%s: got no declaration of its volume, want one", name)
		}

		if strings.HasPrefix(name, "nats-") {
			natsServers++
			// The image of this folder gives the volume to the user of the server.
			if s.Build != "nats" {
				t.Errorf("%s: it is built from %q, want nats", name, s.Build)
			}
			continue
		}

		processes++
		checkParses(t, s.Command)
		for variable := range s.Environment {
			if !slices.Contains(variables, variable) {
				t.Errorf("%s: got the variable %s, want only variables that serve reads", name, variable)
			}
		}
	}
	if natsServers != 3 || processes != 2 {
		t.Errorf("got %d NATS servers and %d processes, want 3 and 2", natsServers, processes)
	}

	// The tests run the NATS server of go.mod.
	version := mustFind(t, "nats/Dockerfile", `(?m)^ARG NATS=nats:(.*)$`)
	checkDeployed(t, "../../go.mod", "nats-server/v2 v"+version+"\n")
	checkDeployed(t, "nats/nats.conf", "sync_interval: always", "store_dir: /data", "nats://nats-a:6222, nats://nats-b:6222, nats://nats-c:6222")
}

// TestHealthcheckFailsOnProblems demands that a container that answers, but cannot archive its log,
// is not healthy.
func TestHealthcheckFailsOnProblems(t *testing.T) {
	const problem = `{"status":"ok","problems":["the log cannot be archived"]}`
	for _, tt := range []struct {
		name, flag, answer string
		wantCode           int
		wantOutput         string
	}{
		{"healthy", "--healthy", `{"status":"ok"}`, exitOK, "ok"},
		{"with a problem", "--healthy", problem, exitFailed, "skein: the log cannot be archived"},
		{"alive with a problem", "--alive", problem, exitOK, "problems"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/healthz" {
					w.WriteHeader(http.StatusNotFound)
				}
				_, _ = w.Write([]byte(tt.answer))
			}))
			defer server.Close()

			code, out, errOut := runInProcess("healthcheck", tt.flag, "--server", server.URL)
			if code != tt.wantCode || !strings.Contains(out+errOut, tt.wantOutput) {
				t.Errorf("got exit code %d and %q, want %d and %q", code, out+errOut, tt.wantCode, tt.wantOutput)
			}
		})
	}
}

// TestDockerfileAndUnitRunKnownCommands demands that the image and the systemd unit run commands of
// this program.
func TestDockerfileAndUnitRunKnownCommands(t *testing.T) {
	// The health check and the unit name the program first.
	healthcheck := mustFindList(t, "Dockerfile", `(?m)^HEALTHCHECK .*CMD (\[.*\])$`)
	checkParses(t, healthcheck[1:])
	start := strings.Fields(mustFind(t, "skein.service", `(?m)^ExecStart=(.*)$`))
	checkParses(t, start[1:])

	command := mustFindList(t, "Dockerfile", `(?m)^CMD (\[.*\])$`)
	checkParses(t, command)
	example := mustFind(t, "Dockerfile", `(?m)^# *docker run .* skein (serve .*)$`)
	checkParses(t, strings.Fields(example))

	checkDeployed(t, "Dockerfile", "FROM scratch", "USER 65532:65532", "VOLUME /data", "STOPSIGNAL SIGTERM")
	variable := mustFind(t, "Dockerfile", `(?m)^ENV (\w+)=/data$`)
	if variables := serveVariables(t); !slices.Contains(variables, variable) {
		t.Errorf("the image sets the variable %s, want one of those that serve reads: %v", variable, variables)
	}
}
