// Command source copies the sources of the control plane here, where package cluster can embed them: each file with
// ".txt" added to its name, since neither a folder with a go.mod nor Go files that nothing here may compile can be
// embedded otherwise. Tests are not copied.
package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	if err := update("../../../internal/controlplane", "source"); err != nil { // go generate runs it one folder up
		fmt.Fprintln(os.Stderr, "source:", err)
		os.Exit(1)
	}
}

// update makes the copy in to the one of the sources in from.
func update(from, to string) error {
	want, err := sources(from)
	if err != nil {
		return err
	}
	have, err := copies(to)
	if err != nil {
		return err
	}
	for name := range have {
		if _, ok := want[name]; !ok {
			if err := os.Remove(filepath.Join(to, name)); err != nil {
				return err
			}
		}
	}
	for name, content := range want {
		path := filepath.Join(to, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// sources returns what the control plane is built of, by the names of the copies.
func sources(dir string) (map[string]string, error) {
	return read(dir, ".txt", func(name string) bool {
		return strings.HasSuffix(name, ".mod") || strings.HasSuffix(name, ".sum") ||
			strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go")
	})
}

// copies returns the copies that are there.
func copies(dir string) (map[string]string, error) {
	return read(dir, "", func(name string) bool { return strings.HasSuffix(name, ".txt") })
}

func read(dir, suffix string, wanted func(name string) bool) (map[string]string, error) {
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !wanted(entry.Name()) {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		files[filepath.ToSlash(name)+suffix] = string(content)
		return nil
	})
	return files, err
}
