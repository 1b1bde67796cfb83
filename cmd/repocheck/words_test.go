package main

import (
	"os"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

// TestRepositoryAvoidsReplacedPhrases checks that no file of the repository has a phrase that was
// replaced.
func TestRepositoryAvoidsReplacedPhrases(t *testing.T) {
	problems, err := checkWords(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	for _, problem := range problems {
		t.Error(problem)
	}
}

// TestCheckWordsFindsPhrases checks that checkWords finds phrases in Go files and pages, those of
// pages only there, and none in generated or foreign files.
func TestCheckWordsFindsPhrases(t *testing.T) {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	got, err := checkWords(fstest.MapFS{
		"a/a.go":              file("package a\n\n// N is how many; 0: all.\nvar N int\n"),
		"a/a.pb.go":           file("// It tells whether.\n"),
		"docs/a.md":           file("It was broken off, and mended.\n"),
		"docs/decisions/1.md": file("It goes on for want of disk.\n"),
		"docs/api.md":         file("It goes on.\n"),
		"a/b.go":              file("// append and recommend are other words; nil means none. It goes on.\n"),
		".cache/a.md":         file("A seam.\n"),
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		`a/a.go:3: "; 0: ", write: ; 0 means …, or 0 disables it`,
		`docs/a.md:1: "broken off", write: interrupted`,
		`docs/a.md:1: "mended", write: repair`,
		`docs/decisions/1.md:1: "for want of", write: for lack of`,
		`docs/decisions/1.md:1: "goes on", write: continues`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}
