package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// built is a version of an operator.
type built struct {
	binary      string
	definitions []string // files
}

// build compiles a version of an operator, unless that was done before.
func build(ctx context.Context, o operator, version string) (*built, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(cache, "thermostat", "upgrades", o.name+"-"+version)
	b := &built{binary: filepath.Join(dir, "operator")}
	if _, err := os.Stat(b.binary); err != nil {
		fmt.Fprintf(os.Stderr, "%s %s is compiled\n", o.name, version)
		if err := compile(ctx, o, version, dir); err != nil {
			return nil, fmt.Errorf("%s %s: %w", o.name, version, err)
		}
	}
	module := o.module
	if o.definitionsOf != "" {
		module = o.definitionsOf
	}
	source, err := goCommand(ctx, dir, "list", "-m", "-f", "{{.Dir}}", module)
	if err != nil {
		return nil, err
	}
	for _, pattern := range o.definitions {
		files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(source)), pattern))
		if err != nil || len(files) == 0 {
			return nil, fmt.Errorf("%s %s has no %s: %v", o.name, version, pattern, err)
		}
		b.definitions = append(b.definitions, files...)
	}
	return b, nil
}

// compile makes a module in dir whose one dependency is the operator. What the operator's module replaces by a version
// of another module is replaced here, too: a replacement is in force in the main module only.
func compile(ctx context.Context, o operator, version, dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module upgraded\n"), 0o644); err != nil {
		return err
	}
	found, err := goCommand(ctx, dir, "mod", "download", "-json", o.module+"@"+version)
	if err != nil {
		return err
	}
	var source struct{ GoMod string }
	if err := json.Unmarshal(found, &source); err != nil {
		return err
	}
	found, err = goCommand(ctx, dir, "mod", "edit", "-json", source.GoMod)
	if err != nil {
		return err
	}
	var mod struct {
		Replace []struct {
			Old, New struct{ Path, Version string }
		}
	}
	if err := json.Unmarshal(found, &mod); err != nil {
		return err
	}
	for _, r := range mod.Replace {
		if r.New.Version == "" { // a folder
			continue
		}
		old := r.Old.Path
		if r.Old.Version != "" {
			old += "@" + r.Old.Version
		}
		if _, err := goCommand(ctx, dir, "mod", "edit", "-replace="+old+"="+r.New.Path+"@"+r.New.Version); err != nil {
			return err
		}
	}
	if _, err := goCommand(ctx, dir, "get", o.program+"@"+version); err != nil {
		return err
	}
	_, err = goCommand(ctx, dir, "build", "-mod=mod", "-o", "operator", o.program)
	return err
}

func goCommand(ctx context.Context, dir string, args ...string) ([]byte, error) {
	c := exec.CommandContext(ctx, "go", args...)
	var failed bytes.Buffer
	c.Dir, c.Stderr = dir, &failed
	out, err := c.Output()
	if err != nil {
		return nil, fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, failed.String())
	}
	return out, nil
}
