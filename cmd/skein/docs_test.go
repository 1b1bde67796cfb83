package main

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var (
	docLink    = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	docCode    = regexp.MustCompile("`([^`\n]+)`")
	docHeading = regexp.MustCompile(`(?m)^#+ (.+)$`)
	docFence   = regexp.MustCompile("(?ms)^ *```\\w*\n(.*?)^ *```$")
	// docPath is what can be nothing but a file or directory of the repository; docFile a Go file
	// without its directory.
	docPath = regexp.MustCompile(`^(\./)?(cmd|docs|events|gateway|projections|proto|replay|\.ci)/[\w./*-]+$`)
	docFile = regexp.MustCompile(`^[\w/]+\.go$`)
	docTest = regexp.MustCompile(`^(Test|Fuzz|Benchmark|Example)[A-Z]\w*`)
	// docFunc is a test, fuzz test, benchmark or example of a Go file.
	docFunc = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark|Example)[A-Z]\w*)\(`)
)

// repository is what there is to be named: paths from the root, and tests.
type repository struct {
	paths []string
	tests map[string]bool
}

func readRepository(t *testing.T) repository {
	t.Helper()
	r := repository{tests: map[string]bool{}}
	top := os.DirFS("../..")
	err := fs.WalkDir(top, ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() && (name == ".git" || name == ".cache" || name == "bin" || e.Name() == "node_modules") {
			return fs.SkipDir
		}
		r.paths = append(r.paths, name)
		if strings.HasSuffix(name, "_test.go") {
			text, err := fs.ReadFile(top, name)
			if err != nil {
				return err
			}
			for _, m := range docFunc.FindAllSubmatch(text, -1) {
				r.tests[string(m[1])] = true
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// contains reports whether a pattern from the root, or the end of a path, is there.
func (r repository) contains(name string) bool {
	name = strings.TrimSuffix(strings.TrimPrefix(name, "./"), "/")
	return slices.ContainsFunc(r.paths, func(p string) bool {
		ok, err := path.Match(name, p)
		return err == nil && ok || docFile.MatchString(name) && strings.HasSuffix(p, "/"+name)
	})
}

// headingAnchors are those of the headings of a document, as GitHub makes them.
func headingAnchors(text string) map[string]bool {
	found := map[string]bool{}
	for _, m := range docHeading.FindAllStringSubmatch(text, -1) {
		anchor := strings.Map(func(c rune) rune {
			switch {
			case c == ' ':
				return '-'
			case c == '-' || c == '_' || 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || c > 127:
				return c
			}
			return -1
		}, strings.ToLower(m[1]))
		for n, name := 1, anchor; ; n++ {
			if !found[name] {
				found[name] = true
				break
			}
			name = anchor + "-" + strconv.Itoa(n)
		}
	}
	return found
}

// TestDocsNameOnlyWhatExists demands that every link, every path of the repository and every test
// that a document names exists, and that its blocks of commands can be pasted: none may begin with
// a prompt.
func TestDocsNameOnlyWhatExists(t *testing.T) {
	r := readRepository(t)
	docs := 0
	for _, name := range r.paths {
		if path.Ext(name) != ".md" || name == "CHANGELOG.md" {
			continue // a changelog names what has been
		}
		docs++
		text, err := os.ReadFile(filepath.Join("../..", filepath.FromSlash(name)))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range docLink.FindAllStringSubmatch(string(text), -1) {
			if !r.linkExists(t, name, string(text), m[1]) {
				t.Errorf("%s links to %s, which is not there", name, m[1])
			}
		}
		for _, m := range docFence.FindAllStringSubmatch(string(text), -1) {
			if strings.HasPrefix(m[1], "$ ") || strings.Contains(m[1], "\n$ ") {
				t.Errorf("%s has a block with a prompt, which cannot be pasted:\n%s", name, m[1])
			}
		}
		for _, m := range docCode.FindAllStringSubmatch(docFence.ReplaceAllString(string(text), ""), -1) {
			if testName := docTest.FindString(m[1]); testName != "" && !r.tests[testName] {
				t.Errorf("%s names the test %s, which is not there", name, m[1])
			}
			if (docPath.MatchString(m[1]) || docFile.MatchString(m[1])) && !r.contains(m[1]) {
				t.Errorf("%s names %s, which is not there", name, m[1])
			}
		}
	}
	if docs < 40 {
		t.Errorf("only %d documents were read", docs)
	}
}

// sourcePath matches a path of a Go file from the root of the repository.
var sourcePath = regexp.MustCompile(`\b(?:cmd|events|gateway|projections|proto|replay)/[\w/.-]*\.go\b`)

// TestScriptsNameExistingSourceFiles reports source files that were moved. Otherwise, scripts that
// only `task nightly` runs would fail because of that weeks later.
func TestScriptsNameExistingSourceFiles(t *testing.T) {
	r := readRepository(t)
	found := 0
	for _, name := range r.paths {
		if path.Ext(name) != ".sh" && !strings.HasPrefix(name, ".ci/") && name != "Taskfile.yml" {
			continue
		}
		text, err := os.ReadFile(filepath.Join("../..", filepath.FromSlash(name)))
		if err != nil {
			t.Fatal(err)
		}
		for _, source := range sourcePath.FindAllString(string(text), -1) {
			found++
			if !slices.Contains(r.paths, source) {
				t.Errorf("%s names %s, which is not there", name, source)
			}
		}
	}
	if found < 2 {
		t.Errorf("expected scripts to name at least 2 source files, they name %d", found)
	}
}

// linkExists reports whether what a document links to is there; what is elsewhere is not looked at.
func (r repository) linkExists(t *testing.T, doc, text, link string) bool {
	t.Helper()
	if strings.Contains(link, "://") || strings.HasPrefix(link, "mailto:") {
		return true
	}
	file, anchor, _ := strings.Cut(link, "#")
	if file != "" {
		file = path.Join(path.Dir(doc), file)
		if !slices.Contains(r.paths, file) {
			return false
		}
		if anchor != "" {
			other, err := os.ReadFile(filepath.Join("../..", filepath.FromSlash(file)))
			if err != nil {
				t.Fatal(err)
			}
			text = string(other)
		}
	}
	return anchor == "" || path.Ext(file) != ".md" && file != "" || headingAnchors(docFence.ReplaceAllString(text, ""))[anchor]
}
