package main

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// modulePath is the import path of the packages in the folder that is counted.
const modulePath = "github.com/skein-feed/skein"

// benchDir has the bench, which has totals of its own.
const benchDir = "cmd/skein-bench"

// packageTokens are the tokens of one package, without generated files.
type packageTokens struct {
	name       string
	production int
	tests      int

	// imports are the folders of this repository that files other than tests import.
	imports []string
}

// sourceTree has a package for each folder with Go files. Folders are relative and separated by
// slashes.
type sourceTree map[string]*packageTokens

// compareTokens prints the tokens of one tree, or compares those of two. Without arguments, it prints
// those of the current folder. One argument is a commit with which the current folder is compared.
// Two arguments are the folders that are compared, the older one first.
func compareTokens(ctx context.Context, args []string, out io.Writer) error {
	switch len(args) {
	case 0:
		head, err := readFolder(".")
		if err != nil {
			return err
		}
		return printTokens(head, out)

	case 1:
		base, err := readCommit(ctx, args[0])
		if err != nil {
			return err
		}
		head, err := readFolder(".")
		if err != nil {
			return err
		}
		return printComparedTokens(base, head, out)

	case 2:
		base, err := readFolder(args[0])
		if err != nil {
			return err
		}
		head, err := readFolder(args[1])
		if err != nil {
			return err
		}
		return printComparedTokens(base, head, out)

	default:
		return errors.New("tokens takes at most two arguments: a commit, or two folders")
	}
}

// readFolder counts the Go files of a folder and of its subfolders.
func readFolder(dir string) (sourceTree, error) {
	tree := sourceTree{}
	//nolint:gosec // whoever counts names the folder
	err := filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		relative, err := filepath.Rel(dir, name)
		if err != nil || !isSource(filepath.ToSlash(relative)) {
			return err
		}
		text, err := os.ReadFile(name) //nolint:gosec // whoever counts names the folder
		if err != nil {
			return err
		}
		return tree.addFile(filepath.ToSlash(relative), text)
	})
	if err == nil && len(tree) == 0 {
		err = fmt.Errorf("there is no Go file in %s", dir)
	}
	return tree, err
}

// readCommit counts the Go files of a commit of the repository in the current folder.
func readCommit(ctx context.Context, commit string) (sourceTree, error) {
	cmd := exec.CommandContext(ctx, "git", "archive", "--format=tar", commit) //nolint:gosec // whoever counts names the commit
	cmd.Stderr = os.Stderr
	archive, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	tree, readErr := readArchive(archive)

	// Read the rest, too. If readArchive has failed, git would otherwise wait forever for someone to
	// read its output.
	_, copyErr := io.Copy(io.Discard, archive)
	if err := cmd.Wait(); err != nil {
		return nil, fmt.Errorf("git archive %s: %w", commit, err)
	}
	return tree, errors.Join(readErr, copyErr)
}

// readArchive counts the Go files of a tar archive.
func readArchive(archive io.Reader) (sourceTree, error) {
	tree := sourceTree{}
	for files := tar.NewReader(archive); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return tree, nil
		}
		if err != nil {
			return nil, err
		}
		if header.Typeflag != tar.TypeReg || !isSource(header.Name) {
			continue
		}
		text, err := io.ReadAll(files)
		if err != nil {
			return nil, err
		}
		if err := tree.addFile(header.Name, text); err != nil {
			return nil, err
		}
	}
}

// isSource reports whether the go command takes a file for part of a package.
func isSource(name string) bool {
	for part := range strings.SplitSeq(name, "/") {
		if part == "testdata" || part == "node_modules" || strings.HasPrefix(part, ".") || strings.HasPrefix(part, "_") {
			return false
		}
	}
	return strings.HasSuffix(name, ".go")
}

// addFile adds the tokens of a file to its package, unless the file is generated.
func (tree sourceTree) addFile(name string, text []byte) error {
	file, err := parser.ParseFile(token.NewFileSet(), name, text, parser.ImportsOnly|parser.ParseComments)
	if err != nil {
		return err
	}
	dir := path.Dir(name)
	if tree[dir] == nil {
		tree[dir] = &packageTokens{}
	}
	pkg := tree[dir]

	// Generated files have no tokens of their own, but what they import belongs to the program.
	isTest := strings.HasSuffix(name, "_test.go")
	if !isTest {
		pkg.name = file.Name.Name
		for _, spec := range file.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			if folder, ours := strings.CutPrefix(imported, modulePath+"/"); ours {
				pkg.imports = append(pkg.imports, folder)
			}
		}
	}
	if ast.IsGenerated(file) {
		return nil
	}

	if isTest {
		pkg.tests += countTokens(text)
	} else {
		pkg.production += countTokens(text)
	}
	return nil
}

// countTokens counts the tokens of a file. Comments do not count, and neither do the semicolons
// that the scanner inserts at the end of a line, so breaking a line changes nothing.
func countTokens(text []byte) int {
	files := token.NewFileSet()
	var s scanner.Scanner
	s.Init(files.AddFile("", files.Base(), len(text)), text, nil, 0)

	count := 0
	for {
		_, tok, literal := s.Scan()
		switch {
		case tok == token.EOF:
			return count
		case tok == token.SEMICOLON && literal == "\n":
		default:
			count++
		}
	}
}

// separateTestSupport counts packages that no program imports as tests: the model, the conformance
// suite, and servers of tests. Imports by the bench do not count, so a package that only the bench
// imports is counted as tests, too.
func (tree sourceTree) separateTestSupport() {
	reached := map[string]bool{}
	var reach func(dir string)
	reach = func(dir string) {
		if reached[dir] || tree[dir] == nil {
			return
		}
		reached[dir] = true
		for _, imported := range tree[dir].imports {
			reach(imported)
		}
	}
	for dir, pkg := range tree {
		if pkg.name == "main" && !isBench(dir) {
			reach(dir)
		}
	}

	for dir, pkg := range tree {
		if !reached[dir] && !isBench(dir) {
			pkg.tests += pkg.production
			pkg.production = 0
		}
	}
}

func isBench(dir string) bool { return dir == benchDir || strings.HasPrefix(dir, benchDir+"/") }

// tokenRow is a row of the table: a package, or a sum.
type tokenRow struct {
	title string
	packageTokens
}

// rows returns a row for each of the folders, and the sums of the product and of the bench. A
// folder that the tree lacks has no tokens.
func (tree sourceTree) rows(dirs []string) []tokenRow {
	tree.separateTestSupport()

	var rows []tokenRow
	product := tokenRow{title: "**all but the bench**"}
	bench := tokenRow{title: "**bench**"}
	for _, dir := range dirs {
		row := tokenRow{title: dir}
		if pkg := tree[dir]; pkg != nil {
			row.packageTokens = *pkg
		}
		sum := &product
		if isBench(dir) {
			sum = &bench
		}
		sum.production += row.production
		sum.tests += row.tests
		rows = append(rows, row)
	}
	return append(rows, product, bench)
}

// printTokens prints a Markdown table of one tree.
func printTokens(tree sourceTree, out io.Writer) error {
	var text strings.Builder
	text.WriteString("| package | production | tests |\n|---|--:|--:|\n")
	for _, row := range tree.rows(slices.Sorted(maps.Keys(tree))) {
		if row.production == 0 && row.tests == 0 {
			continue // all of its files are generated
		}
		fmt.Fprintf(&text, "| %s | %d | %d |\n", row.title, row.production, row.tests)
	}
	_, err := io.WriteString(out, text.String())
	return err
}

// printComparedTokens prints a Markdown table of two trees. Packages whose numbers have not changed
// have no row.
func printComparedTokens(base, head sourceTree, out io.Writer) error {
	dirs := slices.Sorted(maps.Keys(base))
	for dir := range head {
		if base[dir] == nil {
			dirs = append(dirs, dir)
		}
	}
	slices.Sort(dirs)

	var text strings.Builder
	text.WriteString("| package | production before | after | ratio | tests before | after | ratio |\n|---|--:|--:|--:|--:|--:|--:|\n")
	headRows := head.rows(dirs)
	for i, before := range base.rows(dirs) {
		after := headRows[i]
		isSum := i >= len(dirs)
		if before.production == after.production && before.tests == after.tests && !isSum {
			continue
		}
		fmt.Fprintf(&text, "| %s | %d | %d | %s | %d | %d | %s |\n", before.title, before.production, after.production,
			formatRatio(before.production, after.production), before.tests, after.tests, formatRatio(before.tests, after.tests))
	}
	_, err := io.WriteString(out, text.String())
	return err
}

// formatRatio returns after/before, or a dash if there was nothing before.
func formatRatio(before, after int) string {
	if before == 0 {
		return "–"
	}
	return strconv.FormatFloat(float64(after)/float64(before), 'f', 3, 64)
}
