package main

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"
)

const (
	// longFunction is the number of lines above which a function is expected to have paragraphs.
	longFunction = 15

	// wideLine is the number of columns above which a line is wide. A tab is four columns.
	wideLine = 100
	tabWidth = 4
)

// styleFigures are the symptoms of code that is hard to read, counted over the production code of a
// package. They are no targets: a comment that is added to raise a figure makes the code worse.
type styleFigures struct {
	lines, wideLines int

	functions, nameCharacters int
	longFunctions             int
	longWithBlankLine         int

	bodyLines, bodyCommentLines int
}

// printStyle prints a Markdown table of the style figures of each package below dir, and of all of
// them.
func printStyle(args []string, out io.Writer) error {
	if len(args) > 1 {
		return errors.New("style takes at most one argument: a folder")
	}
	root := "."
	if len(args) == 1 {
		root = args[0]
	}

	packages := map[string]*styleFigures{}
	//nolint:gosec // whoever counts names the folder
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		relative, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		relative = filepath.ToSlash(relative)
		if !isSource(relative) || strings.HasSuffix(relative, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(name) //nolint:gosec // whoever counts names the folder
		if err != nil {
			return err
		}

		folder := path.Dir(relative)
		if packages[folder] == nil {
			packages[folder] = &styleFigures{}
		}
		return packages[folder].addFile(relative, text)
	})
	if err != nil {
		return err
	}

	var text strings.Builder
	text.WriteString("| package | comment lines per 100 body lines | functions over 15 lines with a blank line, % " +
		"| mean length of a function name | lines over 100 columns, % |\n|---|--:|--:|--:|--:|\n")
	var sum styleFigures
	for _, folder := range slices.Sorted(maps.Keys(packages)) {
		figures := packages[folder]
		if figures.lines == 0 {
			continue // all files of the package are generated
		}
		fmt.Fprintf(&text, "| %s |%s\n", folder, figures)
		sum.add(figures)
	}
	fmt.Fprintf(&text, "| **all** |%s\n", &sum)
	_, err = io.WriteString(out, text.String())
	return err
}

// addFile adds the figures of a file, unless the file is generated.
func (s *styleFigures) addFile(name string, text []byte) error {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	if ast.IsGenerated(file) {
		return nil
	}

	lines := bytes.Split(bytes.TrimSuffix(text, []byte("\n")), []byte("\n"))
	s.lines += len(lines)
	for _, line := range lines {
		columns := utf8.RuneCount(line) + bytes.Count(line, []byte("\t"))*(tabWidth-1)
		if columns > wideLine {
			s.wideLines++
		}
	}

	comments := commentLines(files, file)
	for _, declaration := range file.Decls {
		function, ok := declaration.(*ast.FuncDecl)
		if !ok || function.Body == nil {
			continue
		}
		s.functions++
		s.nameCharacters += utf8.RuneCountInString(function.Name.Name)
		s.addBody(lines, comments, files.Position(function.Body.Lbrace).Line, files.Position(function.Body.Rbrace).Line)
	}
	return nil
}

// addBody adds the figures of a function whose braces are on the given lines, which count from 1.
func (s *styleFigures) addBody(lines [][]byte, comments map[int]bool, opening, closing int) {
	hasBlankLine := false
	for number := opening + 1; number < closing; number++ {
		isBlank := len(bytes.TrimSpace(lines[number-1])) == 0
		hasBlankLine = hasBlankLine || isBlank
		if !isBlank {
			s.bodyLines++
		}
		if comments[number] {
			s.bodyCommentLines++
		}
	}

	if closing-opening-1 > longFunction {
		s.longFunctions++
		if hasBlankLine {
			s.longWithBlankLine++
		}
	}
}

// commentLines returns the lines of a file that have nothing but a comment.
func commentLines(files *token.FileSet, file *ast.File) map[int]bool {
	found := map[int]bool{}
	for _, group := range file.Comments {
		for _, comment := range group.List {
			for line := files.Position(comment.Pos()).Line; line <= files.Position(comment.End()).Line; line++ {
				found[line] = true
			}
		}
	}

	// A line that also has code, before or behind a comment, does not count.
	ast.Inspect(file, func(node ast.Node) bool {
		switch node.(type) {
		case nil, *ast.Comment, *ast.CommentGroup, *ast.File:
			return node != nil
		}
		delete(found, files.Position(node.Pos()).Line)
		delete(found, files.Position(node.End()).Line)
		return true
	})
	return found
}

// add adds the figures of another package.
func (s *styleFigures) add(other *styleFigures) {
	s.lines += other.lines
	s.wideLines += other.wideLines
	s.functions += other.functions
	s.nameCharacters += other.nameCharacters
	s.longFunctions += other.longFunctions
	s.longWithBlankLine += other.longWithBlankLine
	s.bodyLines += other.bodyLines
	s.bodyCommentLines += other.bodyCommentLines
}

// String returns the columns of a row of the table.
func (s *styleFigures) String() string {
	return fmt.Sprintf(" %s | %s | %s | %s |",
		formatQuotient(100*s.bodyCommentLines, s.bodyLines),
		formatQuotient(100*s.longWithBlankLine, s.longFunctions),
		formatQuotient(s.nameCharacters, s.functions),
		formatQuotient(100*s.wideLines, s.lines))
}

// formatQuotient returns a/b with one digit after the point, or a dash if b is 0.
func formatQuotient(a, b int) string {
	if b == 0 {
		return "–"
	}
	return fmt.Sprintf("%.1f", float64(a)/float64(b))
}
