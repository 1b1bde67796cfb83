package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// The limits of what a reader can take in at once. Tests and generated code do not count.
const (
	folderFiles   = 28
	fileLines     = 600
	functionLines = 80
)

// checkRooms returns which folders, files and functions of a repository are too large.
func checkRooms(repo fs.FS) ([]string, error) {
	var problems []string
	files := map[string]int{}
	err := fs.WalkDir(repo, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := path.Base(name)
		if entry.IsDir() {
			if isForeign(name) || base == "testdata" {
				return fs.SkipDir
			}
			return nil
		}
		if path.Ext(base) != ".go" || strings.HasSuffix(base, "_test.go") {
			return nil
		}
		text, err := fs.ReadFile(repo, name)
		if err != nil {
			return err
		}
		found, counts, err := checkFile(name, text)
		if problems = append(problems, found...); counts {
			files[path.Dir(name)]++
		}
		return err
	})
	for folder, n := range files {
		if n > folderFiles {
			problems = append(problems, fmt.Sprintf("%s has %d files: at most %d", folder, n, folderFiles))
		}
	}
	slices.Sort(problems)
	return problems, err
}

// checkFile reports whether a file counts, and what in it is too large.
func checkFile(name string, text []byte) (problems []string, counts bool, err error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil || ast.IsGenerated(file) {
		return nil, false, err
	}
	if n := strings.Count(string(text), "\n"); n > fileLines {
		problems = append(problems, fmt.Sprintf("%s has %d lines: at most %d", name, n, fileLines))
	}
	for _, decl := range file.Decls {
		f, ok := decl.(*ast.FuncDecl)
		if !ok {
			continue
		}
		if n := set.Position(f.End()).Line - set.Position(f.Pos()).Line - 1; n > functionLines {
			problems = append(problems, fmt.Sprintf("%s: %s has %d lines: at most %d", name, f.Name.Name, n, functionLines))
		}
	}
	return problems, true, nil
}
