// Package foreign links releases of other projects as Go modules, into modules that are made for that. It runs the
// command go, which takes them from where that takes modules.
package foreign

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
)

// Module is what a go.mod says.
type Module struct {
	Require []struct{ Path, Version string }
	Replace []struct {
		Old, New struct{ Path, Version string }
	}
}

// Read reads a go.mod.
func Read(ctx context.Context, file string) (m Module, err error) {
	data, err := Go(ctx, ".", "mod", "edit", "-json", file)
	if err == nil {
		err = json.Unmarshal(data, &m)
	}
	return m, err
}

// Source is where a module that was downloaded is.
type Source struct{ Dir, GoMod string }

// Download downloads a module: MODULE@VERSION, or MODULE in the version that the module in the folder dir uses.
func Download(ctx context.Context, dir, module string) (s Source, err error) {
	found, err := Go(ctx, dir, "mod", "download", "-json", module)
	if err == nil {
		err = json.Unmarshal(found, &s)
	}
	return s, err
}

// Released reads the go.mod of a release, MODULE@VERSION, and downloads it. dir is the folder of a module.
func Released(ctx context.Context, dir, release string) (Module, error) {
	source, err := Download(ctx, dir, release)
	if err != nil {
		return Module{}, err
	}
	return Read(ctx, source.GoMod)
}

// Go runs the command go in a folder, and returns what it prints to standard output. What it prints to standard error
// is in the error, if it fails.
func Go(ctx context.Context, dir string, args ...string) ([]byte, error) {
	c := exec.CommandContext(ctx, "go", args...)
	var failed bytes.Buffer
	c.Dir, c.Stderr = dir, &failed
	out, err := c.Output()
	if err != nil {
		return nil, fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, failed.String())
	}
	return out, nil
}
