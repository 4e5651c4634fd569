package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/thermostat-go/thermostat/internal/foreign"
)

// built is a version of an operator.
type built struct {
	binary      string
	definitions []string // files
}

// build compiles a version of an operator, unless what it would make is there already.
func build(ctx context.Context, o operator, version string) (*built, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, err
	}
	of := func(version string) string { return filepath.Join(cache, "thermostat", "upgrades", o.name+"-"+version) }
	dir := of(version)
	b := &built{binary: filepath.Join(dir, "operator")}
	if _, err := os.Stat(b.binary); err != nil {
		with := ""
		switch {
		case version == o.old: // which is compiled in a moment then, as most of it was compiled for the new one
			if _, err := build(ctx, o, o.new); err != nil {
				return nil, err
			}
			with = of(o.new)
		case o.ours:
			with = "."
		}
		fmt.Fprintf(os.Stderr, "%s %s is compiled\n", o.name, version)
		if err := require(ctx, o, version, dir, with); err != nil {
			return nil, fmt.Errorf("%s %s: %w", o.name, version, err)
		}
	}
	link := ""
	if o.version != "" {
		link = "-X " + o.version + "=" + strings.TrimPrefix(version, "v")
	}
	// This takes a second if the program is the one that these flags and this version of Go make.
	if _, err := foreign.Go(ctx, dir, "build", "-mod=mod", "-ldflags="+link, "-o", "operator", o.program); err != nil {
		return nil, fmt.Errorf("%s %s: %w", o.name, version, err)
	}
	module := o.module
	if o.definitionsOf != "" {
		module = o.definitionsOf
	}
	source, err := foreign.Go(ctx, dir, "list", "-m", "-f", "{{.Dir}}", module)
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

// require makes a module in dir that depends on the operator, and on what the module in the folder with depends on, in
// those versions or newer ones. What the operator's module replaces by a version of another module is replaced here,
// too: a replacement is in force in the main module only.
func require(ctx context.Context, o operator, version, dir, with string) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module upgraded\n"), 0o644); err != nil {
		return err
	}
	own, err := foreign.Released(ctx, dir, o.module+"@"+version)
	if err != nil {
		return err
	}
	edit := []string{"mod", "edit"}
	for _, r := range own.Replace {
		old := r.Old.Path
		if r.Old.Version != "" {
			old += "@" + r.Old.Version
		}
		if r.New.Version != "" { // it is no folder
			edit = append(edit, "-replace="+old+"="+r.New.Path+"@"+r.New.Version)
		}
	}
	if with != "" {
		other, err := foreign.Read(ctx, filepath.Join(with, "go.mod"))
		if err != nil {
			return err
		}
		for _, r := range other.Require {
			own := r.Path == o.definitionsOf || strings.HasPrefix(r.Path+"/", o.module+"/") // of the same release
			if !own && r.Path != "github.com/thermostat-go/thermostat" {
				edit = append(edit, "-require="+r.Path+"@"+r.Version)
			}
		}
	}
	if len(edit) > 2 {
		if _, err := foreign.Go(ctx, dir, edit...); err != nil {
			return err
		}
	}
	_, err = foreign.Go(ctx, dir, "get", o.program+"@"+version)
	return err
}
