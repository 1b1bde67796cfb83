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

// kindLists are the folders that may name several kinds of events in one place, and why.
var kindLists = map[string]string{
	"events":                           "has the table of kinds",
	"projections/counters":             "is a fold",
	"projections/notifications":        "is a fold",
	"projections/graph":                "is a fold",
	"projections/inbox":                "is a fold",
	"projections/seen":                 "is a fold",
	"projections/projectiontest/model": "is the model",
	"projections/store":                "has the loop of all folds, which handles the kinds that every fold reads",

	"replay/importer/redis": "says in which lists of the service the facts of Redis stand, for the kinds that Redis may hold",

	"gateway/gatewaytest":                  "makes events for tests",
	"projections/internal/tally":           "is a fold of tests",
	"projections/projectiontest/histories": "makes events for tests",
	"replay/internal/memlog":               "makes events for tests",
}

// checkKinds returns the places in production code that switch over kinds of events, or list
// several of them, outside the folders of kindLists. Whoever adds a kind would have to change such
// a place, and nothing would say so. What a place needs to know about a kind belongs in the table
// of package events.
func checkKinds(root fs.FS) (problems []string, err error) {
	kinds, err := namesOfKinds(root)
	if err != nil {
		return nil, err
	}
	err = fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (name == benchDir || isForeign(name)):
			return fs.SkipDir // the benchmark is a module of its own
		case entry.IsDir() || path.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") || strings.HasSuffix(name, ".pb.go"):
			return nil
		case kindLists[path.Dir(name)] != "":
			return nil
		}

		source, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		c := kindChecker{kinds: kinds, files: token.NewFileSet()}
		file, err := parser.ParseFile(c.files, name, source, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, c.inspect)
		problems = append(problems, c.problems...)
		return nil
	})
	return problems, err
}

// namesOfKinds returns the names of the constants of type Kind in package events.
func namesOfKinds(root fs.FS) (names []string, err error) {
	const file = "events/kind.go"
	source, err := fs.ReadFile(root, file)
	if err != nil {
		return nil, err
	}
	parsed, err := parser.ParseFile(token.NewFileSet(), file, source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	// firstKind and lastKind have no type of their own in the source, so they are not found.
	ast.Inspect(parsed, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok {
			if kind, ok := spec.Type.(*ast.Ident); ok && kind.Name == "Kind" {
				for _, name := range spec.Names {
					names = append(names, name.Name)
				}
			}
		}
		return true
	})
	if len(names) == 0 {
		return nil, fmt.Errorf("%s has no constants of type Kind", file)
	}
	return names, nil
}

// kindChecker looks for switches over kinds and for lists of them in one file.
type kindChecker struct {
	kinds    []string
	files    *token.FileSet
	problems []string
}

// inspect is called with each node of the file, and returns whether to look into the node.
func (c *kindChecker) inspect(n ast.Node) bool {
	what := ""
	switch n := n.(type) {
	case *ast.SwitchStmt:
		if c.hasCaseOfKind(n.Body) {
			what = "has a switch over kinds"
		}
	case *ast.TypeSwitchStmt:
		if c.hasCaseOfKind(n.Body) {
			what = "has a switch over kinds"
		}
	case *ast.CompositeLit, *ast.CallExpr, *ast.BinaryExpr:
		if len(c.kindsIn(n)) > 1 {
			what = "lists kinds"
		}
	}
	if what == "" {
		return true
	}
	c.problems = append(c.problems, fmt.Sprintf("%s %s of events: give each kind in kindTable (events/kind_table.go) what this place needs to "+
		"know, and ask the kind; only package events, the folds and the model may name several kinds", c.files.Position(n.Pos()), what))
	return false
}

// hasCaseOfKind reports whether a case of a switch is a kind, or the message of one.
func (c *kindChecker) hasCaseOfKind(body *ast.BlockStmt) bool {
	return slices.ContainsFunc(body.List, func(s ast.Stmt) bool {
		clause, ok := s.(*ast.CaseClause)
		return ok && slices.ContainsFunc(clause.List, c.isKind)
	})
}

// isKind reports whether an expression names a kind, as events.Reacted does, or the type of a kind's
// message, as *skeinv1.Event_Reacted does.
func (c *kindChecker) isKind(e ast.Expr) bool {
	if pointer, ok := e.(*ast.StarExpr); ok {
		e = pointer.X
	}
	selector, ok := e.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	from, ok := selector.X.(*ast.Ident)
	if !ok {
		return false
	}
	name, isMessage := strings.CutPrefix(selector.Sel.Name, "Event_")
	return slices.Contains(c.kinds, name) && (from.Name == "events" || isMessage && from.Name == "skeinv1")
}

// kindsIn returns the different kinds that a node names. Types of messages do not count, because a
// list of events is no list of kinds.
func (c *kindChecker) kindsIn(n ast.Node) (names []string) {
	ast.Inspect(n, func(n ast.Node) bool {
		if _, isFunction := n.(*ast.FuncLit); isFunction {
			return false // inspect visits its body by itself
		}
		e, ok := n.(*ast.SelectorExpr)
		if !ok || !c.isKind(e) {
			return true
		}
		isMessage := strings.HasPrefix(e.Sel.Name, "Event_")
		if !isMessage && !slices.Contains(names, e.Sel.Name) {
			names = append(names, e.Sel.Name)
		}
		return true
	})
	return names
}
