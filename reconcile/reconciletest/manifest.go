package reconciletest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"k8s.io/apimachinery/pkg/util/yaml"
)

// eachDocument calls fn with each document of YAML or JSON.
func eachDocument(data []byte, fn func(document []byte) error) error {
	reader := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := fn(document); err != nil {
			return err
		}
	}
}

// eachManifest calls fn with each document of files and of the manifests in directories, in order.
func eachManifest(paths []string, fn func(document []byte) error) error {
	for _, path := range paths {
		files := []string{path}
		entries, err := os.ReadDir(path)
		if err == nil {
			files = nil
			for _, e := range entries {
				if !e.IsDir() && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(e.Name())) {
					files = append(files, filepath.Join(path, e.Name()))
				}
			}
			if len(files) == 0 {
				return fmt.Errorf("the directory %s has no manifests", path)
			}
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			if err := eachDocument(data, fn); err != nil {
				return fmt.Errorf("%s: %w", file, err)
			}
		}
	}
	return nil
}
