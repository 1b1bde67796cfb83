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

const deployDir = "../../docs/deploy"

// checkParses checks that the program accepts a command line.
func checkParses(t *testing.T, args []string) {
	t.Helper()
	parser, err := kong.New(&cli{}, kong.DefaultEnvars("SKEIN"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := parser.Parse(args); err != nil {
		t.Errorf("skein %s: %v", strings.Join(args, " "), err)
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

// serveVariables returns the environment variables that `skein serve` reads.
func serveVariables(t *testing.T) (names []string) {
	t.Helper()
	parser, err := kong.New(&cli{}, kong.DefaultEnvars("SKEIN"))
	if err != nil {
		t.Fatal(err)
	}
	for _, node := range parser.Model.Children {
		if node.Name == "serve" {
			for _, f := range node.Flags {
				names = append(names, f.Envs...)
			}
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
		t.Errorf("%s has the image %q, of which there is no Dockerfile here", service, image)
		return
	}
	text := readDeployed(t, dockerfile)
	for _, volume := range volumes {
		source, path, _ := strings.Cut(volume, ":")
		if strings.HasPrefix(source, ".") {
			continue // a file of this folder
		}
		owned := regexp.MustCompile(`(?m)^COPY .*--chown=65532:65532 \S+ ` + regexp.QuoteMeta(path) + `$`)
		if !owned.MatchString(text) {
			t.Errorf("%s: the volume %s would belong to root, because %s makes no directory %s of user 65532", service, source, dockerfile, path)
		}
	}
}

// TestComposeFileFitsTheProgram demands that the Compose file runs commands of this program with
// variables that the program reads, that each process has a volume of its own, that no port is open
// to other machines, and that the NATS servers sync what they acknowledge.
func TestComposeFileFitsTheProgram(t *testing.T) {
	var file struct {
		Services map[string]struct {
			Image       string            `yaml:"image"`
			Build       string            `yaml:"build"`
			Command     []string          `yaml:"command"`
			Environment map[string]string `yaml:"environment"`
			Ports       []string          `yaml:"ports"`
			Volumes     []string          `yaml:"volumes"`
			ReadOnly    bool              `yaml:"read_only"`
			User        string            `yaml:"user"`
		} `yaml:"services"`
		Volumes map[string]any `yaml:"volumes"`
	}
	if err := yaml.Unmarshal([]byte(readDeployed(t, "compose.yaml")), &file); err != nil {
		t.Fatal(err)
	}
	known := serveVariables(t)
	servers, processes := 0, 0
	for name, s := range file.Services {
		if !s.ReadOnly || s.User != "65532:65532" {
			t.Errorf("%s may write, or is root: %+v", name, s)
		}
		for _, p := range s.Ports {
			if !strings.HasPrefix(p, "127.0.0.1:") {
				t.Errorf("%s is open to other machines: %s", name, p)
			}
		}
		checkVolumeOwners(t, name, s.Image, s.Volumes)
		data := slices.IndexFunc(s.Volumes, func(v string) bool { return strings.HasSuffix(v, ":/data") })
		if data < 0 || strings.TrimSuffix(s.Volumes[data], ":/data") != name {
			t.Errorf("%s has no volume of its own at /data: %v", name, s.Volumes)
		} else if _, ok := file.Volumes[name]; !ok {
			t.Errorf("the volume of %s is not declared", name)
		}
		if strings.HasPrefix(name, "nats-") {
			servers++
			if s.Build != "nats" {
				t.Errorf("%s is built from %q, not from the folder that gives its volume to its user", name, s.Build)
			}
			continue
		}
		processes++
		checkParses(t, s.Command)
		for env := range s.Environment {
			if !slices.Contains(known, env) {
				t.Errorf("%s: serve reads no variable %s", name, env)
			}
		}
	}
	if servers != 3 || processes != 2 {
		t.Errorf("%d servers, %d processes", servers, processes)
	}
	tested := regexp.MustCompile(`(?m)^ARG NATS=nats:(.*)$`).FindStringSubmatch(readDeployed(t, "nats/Dockerfile"))
	if tested == nil || !strings.Contains(readDeployed(t, "../../go.mod"), "nats-server/v2 v"+tested[1]+"\n") {
		t.Errorf("the NATS server is %q, not the version of go.mod", tested)
	}
	conf := readDeployed(t, "nats/nats.conf")
	for _, line := range []string{"sync_interval: always", "store_dir: /data", "nats://nats-a:6222, nats://nats-b:6222, nats://nats-c:6222"} {
		if !strings.Contains(conf, line) {
			t.Errorf("nats.conf lacks %q", line)
		}
	}
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
				t.Errorf("expected exit code %d and %q, got %d %s%s", tt.wantCode, tt.wantOutput, code, out, errOut)
			}
		})
	}
}

// TestDockerfileAndUnitRunKnownCommands demands that the image and the systemd unit run commands of
// this program.
func TestDockerfileAndUnitRunKnownCommands(t *testing.T) {
	docker := readDeployed(t, "Dockerfile")
	var check []string
	found := regexp.MustCompile(`(?m)^HEALTHCHECK .*CMD (\[.*\])$`).FindStringSubmatch(docker)
	if found == nil {
		t.Fatal("the image has no health check")
	}
	if err := json.Unmarshal([]byte(found[1]), &check); err != nil {
		t.Fatal(err)
	}
	checkParses(t, check[1:])
	var command []string
	if err := json.Unmarshal([]byte(regexp.MustCompile(`(?m)^CMD (\[.*\])$`).FindStringSubmatch(docker)[1]), &command); err != nil {
		t.Fatal(err)
	}
	checkParses(t, command)
	run := regexp.MustCompile(`(?m)^# *docker run .* skein (serve .*)$`).FindStringSubmatch(docker)
	checkParses(t, strings.Fields(run[1]))
	for _, line := range []string{"FROM scratch", "USER 65532:65532", "VOLUME /data", "STOPSIGNAL SIGTERM"} {
		if !strings.Contains(docker, line) {
			t.Errorf("the image lacks %q", line)
		}
	}
	if !slices.Contains(serveVariables(t), "SKEIN_DATA") {
		t.Error("the variable of the image is none of serve")
	}
	unit := readDeployed(t, "skein.service")
	start := strings.Fields(regexp.MustCompile(`(?m)^ExecStart=(.*)$`).FindStringSubmatch(unit)[1])
	checkParses(t, start[1:])
}
