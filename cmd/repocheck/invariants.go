package main

import (
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
)

// lawBook defines the invariants that code, mutants and docs cite.
const lawBook = "docs/invariants.md"

var (
	lawHeading  = regexp.MustCompile(`^## (I[1-9]\d*) `)
	lawEvidence = regexp.MustCompile("`([^`]+)`")
	lawCitation = regexp.MustCompile(`\bI[1-9]\d?\b`)
	testName    = regexp.MustCompile(`(?m)^func (Test\w+|Fuzz\w+)\(`)
)

// checkLaw returns what is wrong between the law book and a repository: numbers that are cited and not defined, numbers
// that are defined twice, and tests and mutants that are named and do not exist.
func checkLaw(repo fs.FS) ([]string, error) {
	book, err := fs.ReadFile(repo, lawBook)
	if err != nil {
		return nil, err
	}
	tests, mutants, cited, err := survey(repo)
	if err != nil {
		return nil, err
	}
	var problems []string
	defined := map[string]bool{}
	proven := map[string]bool{} // "I3 Test", "I3 Mutant"
	current := ""
	for line := range strings.Lines(string(book)) {
		if m := lawHeading.FindStringSubmatch(line); m != nil {
			current = m[1]
			if defined[current] {
				problems = append(problems, lawBook+": "+current+" is defined twice")
			}
			defined[current] = true
		}
		for kind, known := range map[string]map[string]bool{"Test": tests, "Mutant": mutants} {
			rest, ok := strings.CutPrefix(line, "- "+kind+": ")
			if !ok {
				continue
			}
			for _, m := range lawEvidence.FindAllStringSubmatch(rest, -1) {
				proven[current+" "+kind] = true
				if !known[m[1]] {
					problems = append(problems, fmt.Sprintf("%s: %s names the %s %s, which does not exist", lawBook, current, strings.ToLower(kind), m[1]))
				}
			}
		}
	}
	for number := range defined {
		for _, kind := range []string{"Test", "Mutant"} {
			if !proven[number+" "+kind] {
				problems = append(problems, fmt.Sprintf("%s: %s names no %s", lawBook, number, strings.ToLower(kind)))
			}
		}
	}
	for number, file := range cited {
		if !defined[number] {
			problems = append(problems, fmt.Sprintf("%s cites %s, which %s does not define", file, number, lawBook))
		}
	}
	slices.Sort(problems)
	return problems, nil
}

// firstMutants returns the base names of the mutants that come first in the list of each invariant, in the order of the law book. A mutant
// that is the first of two invariants is returned once.
func firstMutants(repo fs.FS) ([]string, error) {
	book, err := fs.ReadFile(repo, lawBook)
	if err != nil {
		return nil, err
	}

	var names []string
	for line := range strings.Lines(string(book)) {
		list, ok := strings.CutPrefix(line, "- Mutant: ")
		if !ok {
			continue
		}
		if m := lawEvidence.FindStringSubmatch(list); m != nil && !slices.Contains(names, m[1]) {
			names = append(names, m[1])
		}
	}
	return names, nil
}

// mutantBaseName returns the name by which the law book knows the mutant of a file.
func mutantBaseName(file string) string { return strings.TrimSuffix(path.Base(file), ".mutant") }

// survey collects the names of all tests and mutants, and for each number that is cited one file that cites it.
func survey(repo fs.FS) (tests, mutants map[string]bool, cited map[string]string, err error) {
	tests, mutants, cited = map[string]bool{}, map[string]bool{}, map[string]string{}
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
		// The tests of this command make up numbers.
		if name == lawBook || !slices.Contains([]string{".go", ".md", ".mutant"}, extension) || path.Dir(name) == "cmd/repocheck" {
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
		for _, number := range lawCitation.FindAllString(string(text), -1) {
			cited[number] = name
		}
		return nil
	})
	return tests, mutants, cited, err
}
