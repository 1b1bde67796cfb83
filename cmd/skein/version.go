package main

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"
)

// build is what is known of how the program was made.
type build struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Modified bool   `json:"modified,omitempty"`
	Time     string `json:"time,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func version() build {
	b := build{Version: "devel", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		b.Version = v
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		case "vcs.time":
			b.Time = s.Value
		}
	}
	return b
}

func (b build) short() string { return "skein " + b.Version }

type versionCmd struct {
	JSON bool `help:"Print JSON."`
}

// Run prints the version.
func (c *versionCmd) Run(std *streams) error {
	b := version()
	if c.JSON {
		return json.NewEncoder(std.out).Encode(b)
	}
	fmt.Fprintln(std.out, b.short())
	if b.Revision != "" {
		modified := ""
		if b.Modified {
			modified = ", modified"
		}
		fmt.Fprintf(std.out, "revision %s of %s%s\n", b.Revision, b.Time, modified)
	}
	fmt.Fprintf(std.out, "built with %s for %s\n", b.Go, b.Platform)
	return nil
}
