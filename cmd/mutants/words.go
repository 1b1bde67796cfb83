package main

import (
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strings"
)

// avoided are phrases that docs/development.md asks to write otherwise, each with what to write.
var avoided = []struct {
	phrase *regexp.Regexp
	write  string
}{
	{regexp.MustCompile(`\btells? whether\b`), "reports whether"},
	{regexp.MustCompile(`\btells that\b`), "reports that"},
	{regexp.MustCompile(`; (0|-1|nil|empty): `), "; 0 means …, or 0 disables it"},
	{regexp.MustCompile(`\bbr(eaks?|oke|oken) off\b`), "interrupted"},
	{regexp.MustCompile(`\basks nobody\b|\blistens on this machine only\b`), "authentication is off; binds to loopback"},
	{regexp.MustCompile(`\bwho is not known\b`), "an unauthenticated caller"},
	{regexp.MustCompile(`\b[Mm]end(s|ed|ing)?\b`), "repair"},
	{regexp.MustCompile(`\b[Rr]eviv(e|es|ed|ing) (the|a) (store|projection|generation)\b`), "recover"},
	{regexp.MustCompile(`\b[Ff]ormer (one|generation|version|epoch)s?\b`), "previous"},
	{regexp.MustCompile(`\b[Ss]eams?\b`), "the boundary between archive and stream"},
	{regexp.MustCompile(`\b[Cc]rowds? out\b`), "evict"},
	{regexp.MustCompile(`\b[Cc]olour|\b[Ff]avour|\b[Bb]ehaviour|\b[Nn]eighbour|\b[Hh]onour`), "the American spelling"},
}

// checkWords returns where a repository has phrases that are to be avoided: in Go files, docs and protos. Decisions are left as they
// were written, and generated code says what its source says.
func checkWords(repo fs.FS) (problems []string, err error) {
	err = fs.WalkDir(repo, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir():
			if isForeign(name) || name == "docs/decisions" || name == "bin" {
				return fs.SkipDir
			}
			return nil
		case !isProse(name):
			return nil
		}
		data, err := fs.ReadFile(repo, name)
		if err != nil {
			return err
		}
		number := 0
		for line := range strings.Lines(string(data)) {
			number++
			for _, a := range avoided {
				if found := a.phrase.FindString(line); found != "" {
					problems = append(problems, fmt.Sprintf("%s:%d: %q, write: %s", name, number, found, a.write))
				}
			}
		}
		return nil
	})
	return problems, err
}

// isForeign reports whether a folder holds what others wrote or tools made: one whose name begins with a dot, or packages of npm.
func isForeign(folder string) bool {
	base := path.Base(folder)
	return base != "." && strings.HasPrefix(base, ".") || base == "node_modules"
}

func isProse(name string) bool {
	switch {
	case strings.HasPrefix(name, "cmd/mutants/words"), strings.HasSuffix(name, ".pb.go"), strings.HasSuffix(name, ".connect.go"):
		return false
	}
	switch path.Ext(name) {
	case ".go", ".md", ".proto":
		return true
	}
	return false
}
