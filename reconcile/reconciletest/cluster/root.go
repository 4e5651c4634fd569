package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

const module = "github.com/thermostat-go/thermostat"

// repository finds the root of this repository: tests run in the folder of their package, programs anywhere inside.
func repository() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the repository: %w", err)
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		content, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && strings.HasPrefix(string(content), "module "+module+"\n") {
			return dir, nil
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return "", fmt.Errorf("find the repository: %w", err)
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("find the repository: neither %s nor a folder above it holds the go.mod of %s: "+
				"run this inside a clone of it", start, module)
		}
	}
}
