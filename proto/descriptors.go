//go:build ignore

// Descriptors writes the source of buf/validate/validate.proto, which skein.v1 imports, into a folder. It prints the
// source from the descriptor that the Go package of protovalidate carries, so the file has exactly the version that
// the generated code is compiled against, and neither a registry nor a copy in this repository is needed.
//
// Usage: go run -modfile=tools.mod proto/descriptors.go FOLDER
package main

import (
	"fmt"
	"os"
	"path/filepath"

	validate "buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go/buf/validate"
	"github.com/jhump/protoreflect/v2/protoprint"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "descriptors:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("usage: descriptors FOLDER")
	}
	file := validate.File_buf_validate_validate_proto
	path := filepath.Join(args[0], filepath.FromSlash(file.Path()))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	text, err := (&protoprint.Printer{Compact: true}).PrintProtoToString(file)
	if err != nil {
		return err
	}
	return os.WriteFile(path, []byte(text), 0o644)
}
