package main

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// mutant is a change of the source that a test must notice. The doc of this package describes the
// file of a mutant.
type mutant struct {
	name       string   // path of its file from the root, for people
	invariants []string // which invariants it breaks, as in "I3"
	test       test
	edits      []edit
}

// test names a test of one package. It is comparable: equal tests need only one run without a
// change.
type test struct {
	pkg   string // as in "./projections"
	run   string // regular expression for -run
	flags string // further flags of the test, as in "-short -rapid.shrinktime=1s"
}

// String returns the arguments of go test that run the test.
func (t test) String() string {
	return strings.TrimSpace(t.pkg + " -run " + t.run + " " + t.flags)
}

// edit replaces lines of one file.
type edit struct {
	file     string // path from the root, with slashes
	old, new string // whole lines, each with its end
}

var invariantName = regexp.MustCompile(`^I[1-9]\d*$`)

// parseMutant reads the text of a mutant's file.
func parseMutant(name, text string) (mutant, error) {
	m := mutant{name: name}
	fail := func(line int, format string, args ...any) (mutant, error) {
		return mutant{}, fmt.Errorf("%s:%d: %s", name, line+1, fmt.Sprintf(format, args...))
	}

	// Every line keeps its end, the last one included, because edits replace whole lines.
	lines := strings.SplitAfter(strings.TrimSuffix(text, "\n")+"\n", "\n")
	lines = lines[:len(lines)-1] // SplitAfter returns an empty string after the last line

	// The head ends at the first line that is neither empty nor begins with #.
	i := 0
	for ; i < len(lines); i++ {
		line := strings.TrimSpace(lines[i])
		if line == "" {
			continue
		}
		comment, ok := strings.CutPrefix(line, "#")
		if !ok {
			break
		}
		if err := m.readHeader(strings.TrimSpace(comment)); err != nil {
			return fail(i, "%v", err)
		}
	}

	// Each round reads one change.
	for i < len(lines) {
		file, ok := strings.CutPrefix(lines[i], "--- ")
		if !ok {
			return fail(i, "want --- and a file, not %q", strings.TrimSpace(lines[i]))
		}
		e := edit{file: strings.TrimSpace(file)}
		if !fs.ValidPath(e.file) || path.Ext(e.file) != ".go" {
			return fail(i, "%q is not the path of a Go file from the root", e.file)
		}

		start := i
		for i++; i < len(lines) && lines[i] != "+++\n"; i++ {
			e.old += lines[i]
		}
		if i == len(lines) {
			return fail(start, "no +++ after ---")
		}
		for i++; i < len(lines) && !strings.HasPrefix(lines[i], "--- "); i++ {
			e.new += lines[i]
		}

		if strings.TrimSpace(e.old) == "" || e.old == e.new {
			return fail(start, "the lines to replace are empty, or equal the new lines")
		}
		m.edits = append(m.edits, e)
	}

	switch {
	case m.invariants == nil:
		return fail(0, "no line # invariant:")
	case m.test.pkg == "":
		return fail(0, "no line # test:")
	case len(m.edits) == 0:
		return fail(len(lines)-1, "no change")
	}
	return m, nil
}

// readHeader reads one line of the head, without its #. A line that is neither about invariants nor
// about the test is a comment.
func (m *mutant) readHeader(line string) error {
	key, value, _ := strings.Cut(line, ":")
	value = strings.TrimSpace(value)
	switch key {
	case "invariant":
		if m.invariants != nil {
			return errors.New("a second line # invariant: list all invariants in the first one")
		}
		for name := range strings.SplitSeq(value, ",") {
			name = strings.TrimSpace(name)
			if !invariantName.MatchString(name) {
				return fmt.Errorf("%q is not an invariant: write I3, or I3, I6", name)
			}
			m.invariants = append(m.invariants, name)
		}
	case "test":
		if m.test.pkg != "" {
			return errors.New("a second line # test: a mutant has one test")
		}
		var err error
		m.test, err = parseTest(strings.Fields(value))
		return err
	}
	return nil
}

// parseTest parses the arguments of go test that a mutant names.
func parseTest(args []string) (test, error) {
	isNoFlag := func(arg string) bool { return !strings.HasPrefix(arg, "-") }
	hasPackageAndName := len(args) >= 3 && strings.HasPrefix(args[0], "./") && args[1] == "-run"
	if !hasPackageAndName || slices.ContainsFunc(args[3:], isNoFlag) {
		return test{}, errors.New("the test must be written as ./PACKAGE -run REGEXP [-FLAG[=VALUE] ...]")
	}
	if _, err := regexp.Compile(args[2]); err != nil {
		return test{}, err
	}
	return test{pkg: args[0], run: args[2], flags: strings.Join(args[3:], " ")}, nil
}

// apply returns the changed text of every file that m changes.
func (m mutant) apply(root fs.FS) (map[string]string, error) {
	changed := make(map[string]string)
	for _, e := range m.edits {
		text, ok := changed[e.file]
		if !ok {
			source, err := fs.ReadFile(root, e.file)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", m.name, err)
			}
			// Put a line end before every line, the first one included, to find whole lines.
			text = "\n" + string(source)
		}
		if n := countLines(text, e.old); n != 1 {
			return nil, fmt.Errorf("%s: the lines occur %d times in %s, but must occur once:\n%s", m.name, n, e.file, e.old)
		}
		changed[e.file] = strings.Replace(text, "\n"+e.old, "\n"+e.new, 1)
	}

	for file, text := range changed {
		changed[file] = text[1:] // without the line end that was put before the first line
	}
	return changed, nil
}

// countLines returns how often lines occur in a text as whole lines. The text must begin with a line
// end. Occurrences that overlap count, too.
func countLines(text, lines string) int {
	n := 0
	for {
		i := strings.Index(text, "\n"+lines)
		if i < 0 {
			return n
		}
		n++
		text = text[i+1:]
	}
}

// findMutants reads all mutants below root, in order of their paths.
func findMutants(root fs.FS, only *regexp.Regexp) ([]mutant, error) {
	var found []mutant
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && isForeign(name) {
			return fs.SkipDir
		}
		if ok, _ := filepath.Match("testdata/mutants/*.mutant", lastThree(name)); !ok || !only.MatchString(name) {
			return nil
		}
		text, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		m, err := parseMutant(name, string(text))
		if err != nil {
			return err
		}
		found = append(found, m)
		return nil
	})
	return found, err
}

// lastThree returns the last three elements of a path.
func lastThree(name string) string {
	parts := strings.Split(name, "/")
	return strings.Join(parts[max(0, len(parts)-3):], "/")
}
