package main

import (
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
)

// invariantsPage defines the invariants that code, mutants and other pages cite by their numbers,
// such as I3.
const invariantsPage = "docs/invariants.md"

var (
	invariantHeading  = regexp.MustCompile(`^## (I[1-9]\d*) `)
	quotedName        = regexp.MustCompile("`([^`]+)`")
	invariantCitation = regexp.MustCompile(`\bI[1-9]\d?\b`)
	testName          = regexp.MustCompile(`(?m)^func (Test\w+|Fuzz\w+)\(`)
)

// checkInvariants compares docs/invariants.md with a repository. It returns the numbers that are
// cited but not defined, or defined twice, the tests and mutants that are named but do not exist,
// and the invariants without a test or a mutant.
func checkInvariants(repo fs.FS) ([]string, error) {
	page, err := fs.ReadFile(repo, invariantsPage)
	if err != nil {
		return nil, err
	}
	tests, mutants, cited, err := scanRepository(repo)
	if err != nil {
		return nil, err
	}

	var problems []string
	defined := map[string]bool{}
	named := map[string]bool{} // has "I3 Test" if I3 names a test, and "I3 Mutant" if I3 names a mutant
	current := ""              // the invariant in whose section the line is
	for line := range strings.Lines(string(page)) {
		if m := invariantHeading.FindStringSubmatch(line); m != nil {
			current = m[1]
			if defined[current] {
				problems = append(problems, invariantsPage+": "+current+" is defined twice")
			}
			defined[current] = true
		}

		for kind, known := range map[string]map[string]bool{"Test": tests, "Mutant": mutants} {
			rest, ok := strings.CutPrefix(line, "- "+kind+": ")
			if !ok {
				continue
			}
			for _, m := range quotedName.FindAllStringSubmatch(rest, -1) {
				named[current+" "+kind] = true
				if !known[m[1]] {
					problems = append(problems, fmt.Sprintf("%s: %s names the %s %s, which does not exist",
						invariantsPage, current, strings.ToLower(kind), m[1]))
				}
			}
		}
	}

	for number := range defined {
		for _, kind := range []string{"Test", "Mutant"} {
			if !named[number+" "+kind] {
				problems = append(problems, fmt.Sprintf("%s: %s names no %s", invariantsPage, number, strings.ToLower(kind)))
			}
		}
	}
	for number, file := range cited {
		if !defined[number] {
			problems = append(problems, fmt.Sprintf("%s cites %s, which %s does not define", file, number, invariantsPage))
		}
	}
	slices.Sort(problems)
	return problems, nil
}

// firstMutants returns the base name of the mutant that each invariant names first, in the order of
// docs/invariants.md. A mutant that two invariants name first is returned once.
func firstMutants(repo fs.FS) ([]string, error) {
	page, err := fs.ReadFile(repo, invariantsPage)
	if err != nil {
		return nil, err
	}

	var names []string
	for line := range strings.Lines(string(page)) {
		list, ok := strings.CutPrefix(line, "- Mutant: ")
		if !ok {
			continue
		}
		if m := quotedName.FindStringSubmatch(list); m != nil && !slices.Contains(names, m[1]) {
			names = append(names, m[1])
		}
	}
	return names, nil
}

// mutantBaseName returns the name of a mutant in docs/invariants.md, given its file.
func mutantBaseName(file string) string { return strings.TrimSuffix(path.Base(file), ".mutant") }

// scanRepository returns the names of all tests and mutants, and for each number that is cited one
// file that cites it.
func scanRepository(repo fs.FS) (tests, mutants map[string]bool, cited map[string]string, err error) {
	tests = map[string]bool{}
	mutants = map[string]bool{}
	cited = map[string]string{}
	err = fs.WalkDir(repo, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if isForeign(name) {
				return fs.SkipDir
			}
			return nil
		}
		extension := path.Ext(name)
		mayCite := slices.Contains([]string{".go", ".md", ".mutant"}, extension)
		hasInventedNumbers := path.Dir(name) == "cmd/repocheck" // the tests of this command cite some
		if !mayCite || hasInventedNumbers || name == invariantsPage {
			return nil
		}

		text, err := fs.ReadFile(repo, name)
		if err != nil {
			return err
		}
		if extension == ".mutant" {
			mutants[mutantBaseName(name)] = true
		}
		if strings.HasSuffix(name, "_test.go") {
			for _, m := range testName.FindAllSubmatch(text, -1) {
				tests[string(m[1])] = true
			}
		}
		for _, number := range invariantCitation.FindAllString(string(text), -1) {
			cited[number] = name
		}
		return nil
	})
	return tests, mutants, cited, err
}
