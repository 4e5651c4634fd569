package cluster

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// BuildPrograms builds main packages of published Go modules, unless this machine has them already, and returns the
// folder with the programs. It writes its progress to log; nil means standard error.
//
// The map has the name of each program and its package with a version, as "go install" takes it:
//
//	cluster.BuildPrograms(ctx, nil, map[string]string{"etcd": "go.etcd.io/etcd/server/v3@v3.6.16"})
//
// The packages of one call are built in one new module, so they share the versions of their dependencies. The module
// under test plays no part in it, and a "replace" in a package's own go.mod has no effect. The go command must be able
// to get the modules. The folder stays in the cache of the user like that of [Assets]: nothing in it may be changed,
// and a build 30 days after its last use removes it. When ctx ends the build is given up.
func BuildPrograms(ctx context.Context, log io.Writer, programs map[string]string) (dir string, err error) {
	if log == nil {
		log = os.Stderr
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the folder to keep programs in: %w", err)
	}
	hash := sha256.New()
	fmt.Fprintln(hash, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	for _, name := range slices.Sorted(maps.Keys(programs)) {
		pkg, version, _ := strings.Cut(programs[name], "@")
		if name == "" || name != filepath.Base(name) || pkg == "" || version == "" {
			return "", fmt.Errorf("build program %q of %q: want a file name, and a package with a version like "+
				"example.com/module/command@v1.2.3", name, programs[name])
		}
		fmt.Fprintln(hash, name, programs[name])
	}
	dir = filepath.Join(cache, "thermostat", fmt.Sprintf("programs-%x", hash.Sum(nil)[:8]))
	err = once(ctx, log, dir, func() error { return compilePrograms(ctx, log, programs, dir) })
	if err != nil {
		return "", fmt.Errorf("build programs: %w", err)
	}
	return dir, nil
}

// compilePrograms makes the folder dir of a module that only requires the packages.
func compilePrograms(ctx context.Context, log io.Writer, programs map[string]string, dir string) error {
	work, err := os.MkdirTemp(filepath.Dir(dir), "building-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	result := filepath.Join(work, "result")
	get, build := []string{"get"}, [][]string{{"mod", "init", "programs"}}
	for _, name := range slices.Sorted(maps.Keys(programs)) {
		pkg, _, _ := strings.Cut(programs[name], "@")
		get = append(get, programs[name])
		build = append(build, []string{"build", "-v", "-buildvcs=false", "-o", filepath.Join(result, name), pkg})
	}
	build = slices.Insert(build, 1, get)
	fmt.Fprintf(log, "cluster: compiling %s for %s\n", strings.Join(slices.Sorted(maps.Values(programs)), ", "), dir)
	for _, args := range build {
		command := exec.CommandContext(ctx, "go", args...)
		command.Dir = work
		command.Env = append(os.Environ(), "GOWORK=off", "GO111MODULE=on", "GOFLAGS=-mod=mod", "GOOS="+runtime.GOOS,
			"GOARCH="+runtime.GOARCH)
		if err := runWithProgress(command, 0, log); err != nil {
			return errors.Join(err, ctx.Err())
		}
	}
	return os.Rename(result, dir)
}
