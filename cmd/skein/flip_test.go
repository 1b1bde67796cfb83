package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// flipBit flips a bit of a text where it stands for the nth time in a file of messages below a
// directory. The file as it was is kept in another.
func flipBit(dir, text string, n int, keep string) error {
	all, err := blockFiles(dir)
	if err != nil {
		return err
	}
	for _, path := range all {
		whole, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		data, at := bytes.Clone(whole), 0
		for ; n > 0; n-- {
			next := bytes.Index(data[at:], []byte(text))
			if next < 0 {
				break
			}
			at += next + 1
		}
		if n > 0 {
			continue
		}
		kept, err := json.Marshal(keptFile{path, whole})
		if err != nil {
			return err
		}
		data[at] ^= 1
		return errors.Join(os.WriteFile(keep, kept, 0o600), os.WriteFile(path, data, 0o600))
	}
	return fmt.Errorf("%q is not in %v", text, all)
}

// blockFiles finds the files of messages of a log below a directory.
func blockFiles(dir string) ([]string, error) {
	return filepath.Glob(filepath.Join(dir, "jetstream", "*", "streams", "SKEIN", "msgs", "*.blk"))
}

// unflip brings a file back, as the runbook tells.
func unflip(keep string) error {
	data, err := os.ReadFile(keep)
	if err != nil {
		return err
	}
	var kept keptFile
	if err := json.Unmarshal(data, &kept); err != nil {
		return err
	}
	if err := os.WriteFile(kept.Path, kept.Whole, 0o600); err != nil {
		return err
	}
	if err := os.Remove(filepath.Join(filepath.Dir(kept.Path), "index.db")); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

type keptFile struct {
	Path  string
	Whole []byte
}
