package measure

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"
	"time"
)

// Machine describes the machine and the versions of the programs with which the bench ran.
type Machine struct {
	CPU        string `json:"cpu"`
	Cores      int    `json:"cores"`
	OS         string `json:"os"`
	Arch       string `json:"arch"`
	Go         string `json:"go"`
	Skein      string `json:"skein"`
	Pebble     string `json:"pebble"`
	NATSServer string `json:"nats_server"`
	Connect    string `json:"connect"`
	Redis      string `json:"redis"`
	GoRedis    string `json:"go_redis"`
	Wrk        string `json:"wrk"`
	// FsyncMicros is the median time of an append of 4 KiB with fsync, on the disk of the bench's
	// temporary directory.
	FsyncMicros float64 `json:"fsync_us"`
}

// Tools has the paths of the programs of other projects that the bench runs.
type Tools struct{ RedisServer, RedisBenchmark, Wrk string }

// FindTools looks for the programs. Its error names the Debian packages of those that are missing.
func FindTools() (Tools, error) {
	var (
		t       Tools
		missing []string
	)
	for _, p := range []struct {
		path                *string
		name, debianPackage string
	}{
		{&t.RedisServer, "redis-server", "redis-server"},
		{&t.RedisBenchmark, "redis-benchmark", "redis-tools"},
		{&t.Wrk, "wrk", "wrk"},
	} {
		path, err := exec.LookPath(p.name)
		if err != nil {
			missing = append(missing, fmt.Sprintf("%s (Debian package %s)", p.name, p.debianPackage))
		}
		*p.path = path
	}
	if len(missing) > 0 {
		return t, fmt.Errorf("the bench measures against other programs, and these are not installed: %s; "+
			"on Debian and Ubuntu: apt-get install redis-server redis-tools wrk", strings.Join(missing, ", "))
	}
	return t, nil
}

// DescribeMachine describes the machine, the disk of a directory, and the versions of the programs.
func DescribeMachine(ctx context.Context, t Tools, dir string) (Machine, error) {
	m := Machine{
		CPU: cpuModel(ctx), Cores: runtime.NumCPU(), OS: runtime.GOOS, Arch: runtime.GOARCH, Go: runtime.Version(),
		Redis: toolVersion(ctx, t.RedisServer, "--version"), Wrk: toolVersion(ctx, t.Wrk, "--version"),
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		m.setVersions(info)
	}
	var err error
	m.FsyncMicros, err = measureFsync(dir)
	return m, err
}

// setVersions sets the versions of skein and of the modules with which the bench was built.
func (m *Machine) setVersions(info *debug.BuildInfo) {
	m.Skein = info.Main.Version
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			m.Skein = s.Value[:min(12, len(s.Value))]
		}
	}
	for _, d := range info.Deps {
		switch d.Path {
		case "github.com/cockroachdb/pebble/v2":
			m.Pebble = d.Version
		case "github.com/nats-io/nats-server/v2":
			m.NATSServer = d.Version
		case "github.com/redis/go-redis/v9":
			m.GoRedis = d.Version
		case "connectrpc.com/connect":
			m.Connect = d.Version
		}
	}
}

var versionPattern = regexp.MustCompile(`\d+\.\d+(\.\d+)?`)

// toolVersion returns the first version number that a program prints. It ignores the exit status,
// which is 1 for wrk.
func toolVersion(ctx context.Context, path, flag string) string {
	out, _ := exec.CommandContext(ctx, path, flag).CombinedOutput()
	if v := versionPattern.Find(out); v != nil {
		return string(v)
	}
	return "unknown"
}

// cpuModel returns the name of the processor, on Linux and macOS.
func cpuModel(ctx context.Context) string {
	if data, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(data)) {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				return strings.TrimSpace(value)
			}
		}
	}
	if out, err := exec.CommandContext(ctx, "sysctl", "-n", "machdep.cpu.brand_string").Output(); err == nil {
		return strings.TrimSpace(string(out))
	}
	return "unknown CPU"
}

// measureFsync returns the median time of an append of 4 KiB with fsync, in microseconds.
func measureFsync(dir string) (micros float64, err error) {
	f, err := os.Create(filepath.Join(dir, "fsync"))
	if err != nil {
		return 0, err
	}
	defer func() {
		if closeErr := f.Close(); err == nil {
			err = closeErr
		}
		os.Remove(f.Name())
	}()

	var times []float64
	const samples = 100 // enough for a stable median, and less than a second on most disks
	for block := make([]byte, 4096); len(times) < samples; {
		start := time.Now()
		if _, err := f.Write(block); err != nil {
			return 0, err
		}
		if err := f.Sync(); err != nil {
			return 0, err
		}
		times = append(times, float64(time.Since(start).Microseconds()))
	}
	return Median(times), nil
}
