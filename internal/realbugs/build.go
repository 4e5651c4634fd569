package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/thermostat-go/thermostat/internal/foreign"
)

const thermostat = "github.com/thermostat-go/thermostat"

// ours are modules of this repository that a test may import, by their folders.
var ours = map[string]string{
	thermostat: ".",
	thermostat + "/reconcile/reconciletest/builtin": "reconcile/reconciletest/builtin",
	thermostat + "/reconcile/reconciletest/cel":     "reconcile/reconciletest/cel",
}

// versionsOf are modules of this repository whose requirements and replacements hold for every test.
var versionsOf = []string{"reconcile/reconciletest/builtin", "internal/zoo"}

// build makes the module that has the test of a version of a program in a folder, and compiles it to check.test there.
func build(ctx context.Context, p program, version, dir string) error {
	root, err := filepath.Abs("../..")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := copyTests(p, version, dir); err != nil {
		return err
	}
	if err := require(ctx, p, version, root, dir); err != nil {
		return err
	}
	if err := copyDefinitions(ctx, p, dir); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "%s %s is compiled\n", p.name, version)
	_, err = foreign.Go(ctx, dir, "test", "-mod=mod", "-c", "-o", "check.test", ".")
	return err
}

// folder is that of the module of a version.
func folder(p program, version string) (string, error) {
	cache, err := os.UserCacheDir()
	return filepath.Join(cache, "thermostat", "realbugs", p.name+"-"+version), err
}

// copyTests copies the files of the test, with those for a version, to the folder of the module.
func copyTests(p program, version, dir string) error {
	folders := []string{filepath.Join("testdata", p.name), filepath.Join("testdata", p.name, version)}
	if p.outside {
		folders = append(folders, filepath.Join("testdata", "outside"))
	}
	if p.outside || p.wants {
		folders = append(folders, filepath.Join("testdata", "want"))
	}
	for _, from := range folders {
		files, err := filepath.Glob(filepath.Join(from, "*.go"))
		if err != nil {
			return err
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(dir, filepath.Base(file)), data, 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

// require writes the go.mod. What the module of the program replaces by a version of another module is replaced here,
// too, unless this repository says which version: a replacement is in force in the main module only. A module that it
// replaces by one of its own folders is taken in the version of the program.
func require(ctx context.Context, p program, version, root, dir string) error {
	name := path.Join(p.module, p.below, "check")
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module "+name+"\n\ngo 1.26.0\n"),
		0o644); err != nil {
		return err
	}
	edit, replaced := []string{"mod", "edit"}, map[string]bool{}
	replace := func(path, by string) {
		if !replaced[path] {
			replaced[path] = true
			edit = append(edit, "-replace="+path+"="+by)
		}
	}
	for path, folder := range ours {
		edit = append(edit, "-require="+path+"@v0.0.0")
		replace(path, filepath.Join(root, folder))
	}
	required := map[string]bool{}
	for _, folder := range append(slices.Clone(versionsOf), p.versions...) {
		m, err := foreign.Read(ctx, filepath.Join(root, folder, "go.mod"))
		if err != nil {
			return err
		}
		for _, r := range m.Require {
			if ours[r.Path] == "" && !required[r.Path] && r.Path != p.module {
				required[r.Path] = true
				edit = append(edit, "-require="+r.Path+"@"+r.Version)
			}
		}
		for _, r := range m.Replace {
			if r.New.Version != "" {
				replace(r.Old.Path, r.New.Path+"@"+r.New.Version)
			}
		}
		// A newer version of one of them would be compiled, and with it all that depends on it.
		for _, r := range m.Require {
			if ours[r.Path] == "" && r.Path != p.module {
				replace(r.Path, r.Path+"@"+r.Version)
			}
		}
	}
	as := p.module
	if p.apart && version == p.old {
		as = released
		replace(as, p.module+"@"+version)
	}
	edit = append(edit, "-require="+as+"@"+version)
	theirs, err := foreign.Released(ctx, dir, p.module+"@"+version)
	if err != nil {
		return err
	}
	for _, r := range theirs.Replace {
		switch {
		case strings.HasPrefix(r.Old.Path, "k8s.io/"):
		case r.New.Version != "":
			replace(r.Old.Path, r.New.Path+"@"+r.New.Version)
		case strings.HasPrefix(r.Old.Path, p.module+"/"): // a folder of the program, which is released with it
			edit = append(edit, "-require="+r.Old.Path+"@"+version)
			replace(r.Old.Path, r.Old.Path+"@"+version)
		}
	}
	_, err = foreign.Go(ctx, dir, edit...)
	return err
}

// copyDefinitions copies the files with CustomResourceDefinitions to the folder crd of the module.
func copyDefinitions(ctx context.Context, p program, dir string) error {
	if p.definitions == "" {
		return nil
	}
	if err := copyFrom(ctx, cmp.Or(p.definitionsOf, p.module), p.definitions, dir); err != nil {
		return err
	}
	for of, definitions := range p.others {
		if err := copyFrom(ctx, of, definitions, dir); err != nil {
			return err
		}
	}
	return nil
}

// copyFrom copies the files that match a pattern in the folder of a module.
func copyFrom(ctx context.Context, of, definitions, dir string) error {
	source, err := foreign.Download(ctx, dir, of)
	if err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(source.Dir, definitions))
	if err != nil || len(files) == 0 {
		return fmt.Errorf("there is no %s: %v", definitions, err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "crd"), 0o755); err != nil {
		return err
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, "crd", filepath.Base(file)), data, 0o644); err != nil {
			return err
		}
	}
	return nil
}
