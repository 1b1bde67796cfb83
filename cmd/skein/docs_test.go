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
	// docFence matches a block of code or of commands.
	docFence = regexp.MustCompile("(?ms)^ *```\\w*\n(.*?)^ *```$")
	// docPath matches what can be nothing but a file or directory of the repository, and docFile a
	// Go file with or without its directory.
	docPath = regexp.MustCompile(`^(\./)?(cmd|docs|events|gateway|projections|proto|replay|\.ci)/[\w./*-]+$`)
	docFile = regexp.MustCompile(`^[\w/]+\.go$`)
	docTest = regexp.MustCompile(`^(Test|Fuzz|Benchmark|Example)[A-Z]\w*`)
	// testFunc matches a test, fuzz test, benchmark or example in a Go file.
	testFunc = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark|Example)[A-Z]\w*)\(`)
	// sourcePath matches a path of a Go file from the root of the repository.
	sourcePath = regexp.MustCompile(`\b(?:cmd|events|gateway|projections|proto|replay)/[\w/.-]*\.go\b`)
)

// repository has everything that a document can name: files and directories by their paths from the
// root, and tests.
type repository struct {
	paths []string
	tests map[string]bool
}

// repositoryRoot is the root of the repository, as seen from the directory of this package.
const repositoryRoot = "../.."

// readRepository lists the paths and the tests of the repository. It leaves out directories that
// are not in Git.
func readRepository(t *testing.T) repository {
	t.Helper()
	r := repository{tests: map[string]bool{}}
	root := os.DirFS(repositoryRoot)
	err := fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && (name == ".git" || name == ".cache" || name == "bin" || entry.Name() == "node_modules") {
			return fs.SkipDir
		}
		r.paths = append(r.paths, name)

		if !strings.HasSuffix(name, "_test.go") {
			return nil
		}
		text, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		for _, match := range testFunc.FindAllSubmatch(text, -1) {
			r.tests[string(match[1])] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// mustRead returns the text of a file. The name is its path from the root of the repository.
func (r repository) mustRead(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(repositoryRoot, filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// contains reports whether the repository has a path that matches the pattern, or a Go file whose
// path ends with the pattern.
func (r repository) contains(pattern string) bool {
	pattern = strings.TrimSuffix(strings.TrimPrefix(pattern, "./"), "/")
	return slices.ContainsFunc(r.paths, func(name string) bool {
		if matches, err := path.Match(pattern, name); err == nil && matches {
			return true
		}
		return docFile.MatchString(pattern) && strings.HasSuffix(name, "/"+pattern)
	})
}

// linkTargetExists reports whether what a document links to exists. It does not follow links to
// other sites. The text is that of the document, to which a link without a file refers.
func (r repository) linkTargetExists(t *testing.T, document, text, link string) bool {
	t.Helper()
	if strings.Contains(link, "://") || strings.HasPrefix(link, "mailto:") {
		return true
	}

	file, anchor, _ := strings.Cut(link, "#")
	target := document
	if file != "" {
		target = path.Join(path.Dir(document), file)
		if !slices.Contains(r.paths, target) {
			return false
		}
	}

	// Only documents have headings. An anchor in another file is not checked.
	if anchor == "" || path.Ext(target) != ".md" {
		return true
	}
	if target != document {
		text = r.mustRead(t, target)
	}
	return headingAnchors(text)[anchor]
}

// headingAnchors returns the anchors that GitHub makes for the headings of a document.
func headingAnchors(text string) map[string]bool {
	anchors := map[string]bool{}
	for _, match := range docHeading.FindAllStringSubmatch(withoutFences(text), -1) {
		// GitHub writes spaces as dashes, and leaves out punctuation.
		anchor := strings.Map(func(c rune) rune {
			switch {
			case c == ' ':
				return '-'
			case c == '-' || c == '_' || 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || c > 127:
				return c
			}
			return -1
		}, strings.ToLower(match[1]))

		// Repeated headings get the numbers -1, -2 and so on.
		unique := anchor
		for n := 1; anchors[unique]; n++ {
			unique = anchor + "-" + strconv.Itoa(n)
		}
		anchors[unique] = true
	}
	return anchors
}

// withoutFences returns the text of a document without its blocks of code.
func withoutFences(text string) string {
	return docFence.ReplaceAllString(text, "")
}

// TestDocsNameOnlyWhatExists demands that every link, every path of the repository and every test
// that a document names exists, and that its blocks of commands can be pasted: none may begin with
// a prompt.
func TestDocsNameOnlyWhatExists(t *testing.T) {
	r := readRepository(t)
	documents := 0
	for _, name := range r.paths {
		// The changelog may name what existed in an earlier version.
		if path.Ext(name) != ".md" || name == "CHANGELOG.md" {
			continue
		}
		documents++
		text := r.mustRead(t, name)

		for _, match := range docLink.FindAllStringSubmatch(text, -1) {
			if link := match[1]; !r.linkTargetExists(t, name, text, link) {
				t.Errorf("%s links to %s, which does not exist", name, link)
			}
		}

		for _, match := range docFence.FindAllStringSubmatch(text, -1) {
			if block := match[1]; strings.HasPrefix(block, "$ ") || strings.Contains(block, "\n$ ") {
				t.Errorf("%s has a block with a prompt, which cannot be pasted:\n%s", name, block)
			}
		}

		for _, match := range docCode.FindAllStringSubmatch(withoutFences(text), -1) {
			code := match[1]
			if testName := docTest.FindString(code); testName != "" && !r.tests[testName] {
				t.Errorf("%s names the test %s, which does not exist", name, code)
			}
			if (docPath.MatchString(code) || docFile.MatchString(code)) && !r.contains(code) {
				t.Errorf("%s names the file %s, which does not exist", name, code)
			}
		}
	}

	// There are about 90 documents. Far fewer mean that the test did not find them.
	if documents < 40 {
		t.Errorf("got %d documents, want at least 40", documents)
	}
}

// TestScriptsNameExistingSourceFiles reports source files that were moved. Otherwise, scripts that
// only `task nightly` runs would fail because of that weeks later.
func TestScriptsNameExistingSourceFiles(t *testing.T) {
	r := readRepository(t)
	found := 0
	for _, name := range r.paths {
		if path.Ext(name) != ".sh" && !strings.HasPrefix(name, ".ci/") && name != "Taskfile.yml" {
			continue
		}
		for _, source := range sourcePath.FindAllString(r.mustRead(t, name), -1) {
			found++
			if !slices.Contains(r.paths, source) {
				t.Errorf("%s names %s, which does not exist", name, source)
			}
		}
	}

	if found < 2 {
		t.Errorf("got %d names of source files in scripts, want at least 2", found)
	}
}
