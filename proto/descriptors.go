//go:build ignore

// Descriptors writes protos of others into a folder: buf/validate/validate.proto, which skein.v1
// imports, and google/rpc/error_details.proto, which the details of errors are made of. It prints
// each from the descriptor that a Go package carries, so the file has exactly the version that the
// generated code is compiled against, and neither a registry nor a copy in this repository is
// needed.
//
// Usage: go run -modfile=tools.mod proto/descriptors.go FOLDER
package main

import (
	"fmt"
	"os"
	"path/filepath"

	validate "buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go/buf/validate"
	"github.com/jhump/protoreflect/v2/protoprint"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/reflect/protoreflect"
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
	for _, file := range []protoreflect.FileDescriptor{
		validate.File_buf_validate_validate_proto,
		errdetails.File_google_rpc_error_details_proto,
	} {
		if err := write(args[0], file); err != nil {
			return err
		}
	}
	return nil
}

func write(folder string, file protoreflect.FileDescriptor) error {
	path := filepath.Join(folder, filepath.FromSlash(file.Path()))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	text, err := (&protoprint.Printer{Compact: true}).PrintProtoToString(file)
	if err != nil {
		return err
	}
	return os.WriteFile(path, []byte(text), 0o644)
}
