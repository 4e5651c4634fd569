package cluster

import (
	"context"
	"crypto/sha256"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

//go:generate go run ./source

// embedded is a copy of internal/controlplane in this repository. That is a module of its own, so that the
// dependencies of the control plane are not those of the library; and a module is not part of the module around it, so
// that only a copy reaches the users of the library. Each version of Kubernetes has a go.mod of its own: see release.
//
//go:embed source/*.txt source/*/*.txt
var embedded embed.FS

const (
	binaryName = "controlplane"
	// controlPlanePackages is about how many packages the binary is made of.
	controlPlanePackages = 2700
	// keepUnused is how long a control plane or a program stays in the cache after its last use.
	keepUnused = 30 * 24 * time.Hour
)

// programs are the names under which the binary is a program of the control plane.
var programs = []string{"etcd", "kube-apiserver", "kube-controller-manager", "kubectl"}

// Assets builds the control plane, unless this machine has it already, and returns the folder with its programs: etcd,
// kube-apiserver, kube-controller-manager and kubectl. It writes its progress to standard error. The variable
// THERMOSTAT_KUBERNETES chooses their version, as for a cluster whose [Options] name none.
//
// The folder is what the variable KUBEBUILDER_ASSETS names for tests that use envtest of controller-runtime. It stays
// in the cache of the user; nothing in it may be changed.
//
// Any number of processes may call Assets at the same time: one of them builds, the others wait for it. When ctx ends
// the build is given up, and the next call begins a new one.
func Assets(ctx context.Context) (dir string, err error) { return assets(ctx, os.Stderr, "") }

func assets(ctx context.Context, log io.Writer, version string) (string, error) {
	source, err := fs.Sub(embedded, "source")
	if err != nil {
		return "", err
	}
	release, err := releaseOf(source, version)
	if err != nil {
		return "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the folder to keep the control plane in: %w", err)
	}
	return build(ctx, log, source, release, filepath.Join(cache, "thermostat"))
}

// build returns the folder below cache with the programs made of a source. Its name has the version and a hash of all
// that they depend on, and it gets this name when it is complete: a folder of this name needs no further look.
func build(ctx context.Context, log io.Writer, source fs.FS, r release, cache string) (string, error) {
	print, err := fingerprint(source, r)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "controlplane-"+r.version+"-"+print)
	if err := once(ctx, log, dir, func() error { return compile(ctx, log, source, r, dir) }); err != nil {
		return "", fmt.Errorf("build the control plane of Kubernetes %s: %w", r.version, err)
	}
	return dir, nil
}

// once has compile make a folder of the cache, unless it is there. Of all processes that need it one compiles, and the
// others wait.
func once(ctx context.Context, log io.Writer, dir string, compile func() error) error {
	if inUse(dir) {
		return nil
	}
	cache := filepath.Dir(dir)
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return err
	}
	unlock, err := lock(ctx, log, filepath.Join(cache, "lock"))
	if err != nil {
		return err
	}
	defer unlock()
	if inUse(dir) { // another process has built it in the meantime
		return nil
	}
	if err := clean(cache, time.Now().Add(-keepUnused)); err != nil {
		return err
	}
	return compile()
}

// inUse says whether a folder is there, and if it is, notes that it was used now.
func inUse(dir string) bool {
	now := time.Now()
	return os.Chtimes(dir, now, now) == nil
}

// clean removes what an interrupted build has left, and the control planes and programs that were used last before a
// time. A cluster that runs keeps the files that it has open.
func clean(cache string, before time.Time) error {
	entries, err := os.ReadDir(cache)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		info, err := entry.Info()
		if err != nil {
			return err
		}
		kept := strings.HasPrefix(entry.Name(), "controlplane-") || strings.HasPrefix(entry.Name(), "programs-")
		old := info.ModTime().Before(before)
		if kept && old || strings.HasPrefix(entry.Name(), "building-") {
			if err := os.RemoveAll(filepath.Join(cache, entry.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// compile makes the folder dir. It works in a folder beside it that has a new name each time, so that a go command that
// outlives this process by a moment cannot spoil the next attempt.
func compile(ctx context.Context, log io.Writer, source fs.FS, r release, dir string) error {
	work, err := os.MkdirTemp(filepath.Dir(dir), "building-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	sources, result := filepath.Join(work, "source"), filepath.Join(work, "result")
	if err := unpack(source, r, sources); err != nil {
		return err
	}
	fmt.Fprintf(log, "cluster: compiling etcd, kube-apiserver and kube-controller-manager of Kubernetes %s for %s; "+
		"the first time this takes several minutes\n", r.version, dir)
	// The environment is for the code under test: flags like -mod=vendor and a workspace are not meant for this build.
	command := exec.CommandContext(ctx, "go", "build", "-v", "-mod=readonly", "-buildvcs=false", "-ldflags",
		r.linkerFlags(), "-o", filepath.Join(result, binaryName), ".")
	command.Dir = sources
	command.Env = append(os.Environ(), "GOWORK=off", "GO111MODULE=on", "GOOS="+runtime.GOOS, "GOARCH="+runtime.GOARCH)
	if err := runWithProgress(command, controlPlanePackages, log); err != nil {
		return errors.Join(err, ctx.Err())
	}
	for _, name := range programs {
		if err := os.Symlink(binaryName, filepath.Join(result, name)); err != nil {
			return err
		}
	}
	return os.Rename(result, dir)
}

// unpack writes the source of a release to a folder, each file under the name that it had before it was copied.
func unpack(source fs.FS, r release, dir string) error {
	return eachFile(source, r, func(name string, content []byte) error {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		return os.WriteFile(path, content, 0o644)
	})
}

func eachFile(source fs.FS, r release, do func(name string, content []byte) error) error {
	return fs.WalkDir(source, ".", func(p string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || path.Ext(p) != ".txt" {
			return err
		}
		name, ok := r.fileName(strings.TrimSuffix(p, ".txt"))
		if !ok {
			return nil
		}
		content, err := fs.ReadFile(source, p)
		if err != nil {
			return err
		}
		return do(name, content)
	})
}

// fingerprint is a hash of all that the binary depends on: the go.sum stands for the modules.
func fingerprint(source fs.FS, r release) (string, error) {
	hash := sha256.New()
	fmt.Fprintln(hash, runtime.Version(), runtime.GOOS, runtime.GOARCH, r.linkerFlags())
	err := eachFile(source, r, func(name string, content []byte) error {
		fmt.Fprintln(hash, name, len(content))
		hash.Write(content)
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("read the sources: %w", err)
	}
	return fmt.Sprintf("%x", hash.Sum(nil)[:8]), nil
}

// lock takes a lock that all processes of this user share. The system frees it when its holder dies.
func lock(ctx context.Context, log io.Writer, path string) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	for told := false; ; {
		locked, err := tryLock(file)
		if err != nil {
			file.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		if locked {
			return func() { file.Close() }, nil
		}
		if !told {
			fmt.Fprintf(log, "cluster: another process is building; waiting for it\n")
			told = true
		}
		select {
		case <-ctx.Done():
			file.Close()
			return nil, fmt.Errorf("wait for %s, which another process holds while it builds: %w", path, ctx.Err())
		case <-time.After(200 * time.Millisecond):
		}
	}
}
