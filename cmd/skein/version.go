package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/archive"
	"github.com/skein-feed/skein/gateway"
	"github.com/skein-feed/skein/projections/all"
	"github.com/skein-feed/skein/projections/store"
	"github.com/skein-feed/skein/replay/snapshot"
)

// releaseVersion is the version of a release, which `task release` sets by a flag of the linker (-X
// main.releaseVersion=v1.2.3). If it is empty, the go command has named the program after its
// commit.
//
//nolint:gochecknoglobals // the linker can set only global variables
var releaseVersion string

// buildInfo describes how the program was built.
type buildInfo struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Modified bool   `json:"modified,omitempty"`
	Time     string `json:"time,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
	// Static reports that it was built without cgo.
	Static bool `json:"static"`
	// Modules are the versions of the modules that determine the formats of files and of the wire.
	Modules map[string]string `json:"modules,omitempty"`
}

// reportedModules are the modules whose versions are reported.
var reportedModules = []string{
	"github.com/cockroachdb/pebble/v2", "github.com/nats-io/nats-server/v2", "github.com/nats-io/nats.go", "connectrpc.com/connect",
}

func version() buildInfo {
	b := buildInfo{Version: "devel", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		b.Version = v
	}
	if releaseVersion != "" {
		b.Version = releaseVersion
	}

	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		case "vcs.time":
			b.Time = s.Value
		case "CGO_ENABLED":
			b.Static = s.Value == "0"
		}
	}

	b.Modules = map[string]string{}
	for _, m := range info.Deps {
		if slices.Contains(reportedModules, m.Path) {
			b.Modules[m.Path] = m.Version
		}
	}
	return b
}

func (b buildInfo) short() string { return "skein " + b.Version }

// formats has the versions of the formats that the program writes and reads. docs/upgrading.md
// explains them.
type formats struct {
	// Store is the format of the files of new stores.
	Store store.FileFormat `json:"store"`
	// NewestStore is the newest format of stores that the program can open.
	NewestStore store.FileFormat `json:"newest_store"`
	// Projections has the versions of the folds, by projection.
	Projections map[string]int `json:"projections"`
	// Others has the versions of all other formats that outlive the process or that clients keep,
	// by name.
	Others map[string]int `json:"others"`
}

func knownFormats() formats {
	f := formats{
		Store: store.Format(), NewestStore: store.NewestFormat(), Projections: map[string]int{}, Others: map[string]int{},
	}
	for _, p := range all.All(all.Settings{}) {
		f.Projections[p.Name()] = int(p.Version())
	}
	for _, formats := range []map[string]int{events.Formats(), archive.Formats(), snapshot.Formats(), gateway.Formats()} {
		maps.Copy(f.Others, formats)
	}
	return f
}

// text returns the version, the build and the formats for people.
func (b buildInfo) text() string {
	var out strings.Builder
	fmt.Fprintln(&out, b.short())
	if b.Revision != "" {
		modified := ""
		if b.Modified {
			modified = ", modified"
		}
		fmt.Fprintf(&out, "revision %s of %s%s\n", b.Revision, b.Time, modified)
	}
	static := ""
	if b.Static {
		static = ", without cgo"
	}
	fmt.Fprintf(&out, "built with %s for %s%s\n", b.Go, b.Platform, static)
	for _, path := range reportedModules {
		if v := b.Modules[path]; v != "" {
			fmt.Fprintf(&out, "uses %s %s\n", path, v)
		}
	}

	f := knownFormats()
	fmt.Fprintf(&out, "makes stores of format %d, opens them up to %d\n", f.Store.Engine, f.NewestStore.Engine)
	fmt.Fprintf(&out, "folds:%s\nformats:%s\n", formatVersions(f.Projections), formatVersions(f.Others))
	return out.String()
}

func formatVersions(versions map[string]int) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(versions)) {
		parts = append(parts, fmt.Sprintf(" %s %d", name, versions[name]))
	}
	return strings.Join(parts, ",")
}

// versionFlag is the flag --version, which prints what the command version prints.
type versionFlag bool

// BeforeReset is called by kong when the flag is given, before anything else that could fail.
//
//nolint:unparam // kong demands an error as the result
func (versionFlag) BeforeReset(app *kong.Kong) error {
	fmt.Fprint(app.Stdout, version().text())
	app.Exit(exitOK)
	return nil
}

type versionCmd struct {
	JSON bool `help:"Print JSON."`
}

// Run prints the version.
func (c *versionCmd) Run(std *command.Streams) error {
	if !c.JSON {
		fmt.Fprint(std.Out, version().text())
		return nil
	}
	return json.NewEncoder(std.Out).Encode(struct {
		buildInfo

		Formats formats `json:"formats"`
	}{version(), knownFormats()})
}
