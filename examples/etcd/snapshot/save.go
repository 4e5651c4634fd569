package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	clientv3 "go.etcd.io/etcd/client/v3"
	clientsnapshot "go.etcd.io/etcd/client/v3/snapshot"
	"go.uber.org/zap"

	"github.com/thermostat-go/thermostat/examples/etcd/certs"
)

// report is what a file has. It lies beside the file as well, with the suffix ".json", so that the folder alone tells
// what is in it.
type report struct {
	Version  string `json:"version"` // of the member
	Revision int64  `json:"revision"`
	Keys     int    `json:"keys"`
	Size     int64  `json:"size"`   // of the file in bytes
	SHA256   string `json:"sha256"` // of the database
	HashKV   uint32 `json:"hashKV"` // etcd's hash of all keys at the revision
}

const (
	noted = ".json"  // suffix of the report
	fresh = ".fresh" // suffix of a file that is not verified yet
)

// save makes a file of a snapshot, unless the file is there: then it was verified before it got its name, and it is
// only looked at again.
func save(ctx context.Context, o options) (report, error) {
	if _, err := os.Stat(o.path()); err == nil {
		return verify(o.path())
	}
	if err := os.MkdirAll(o.dir, 0o755); err != nil {
		return report{}, err
	}
	cfg := clientv3.Config{Context: ctx, Logger: zap.NewNop()}
	if o.tls != "" {
		var err error
		if cfg.TLS, err = readTLS(o.tls); err != nil {
			return report{}, fmt.Errorf("--tls=%s: %w", o.tls, err)
		}
	}
	var failed []error
	for _, endpoint := range o.endpoints {
		cfg.Endpoints = []string{endpoint}
		r, err := saveFrom(ctx, cfg, o.path())
		if err == nil {
			return r, nil
		}
		failed = append(failed, fmt.Errorf("%s: %w", endpoint, err))
	}
	return report{}, errors.Join(failed...)
}

// saveFrom takes the snapshot of one member. The member first serves a read that a quorum confirms: so it knows all
// writes that were acknowledged until now, and so does the snapshot. In the end the member hashes its keys at the
// revision of the file, which must have the same hash.
func saveFrom(ctx context.Context, cfg clientv3.Config, path string) (r report, err error) {
	endpoint := cfg.Endpoints[0]
	client, err := clientv3.New(cfg)
	if err != nil {
		return r, err
	}
	defer client.Close()
	if _, err := client.Get(ctx, "\x00", clientv3.WithCountOnly()); err != nil {
		return r, fmt.Errorf("a read that a quorum confirms: %w", err)
	}
	status, err := client.Status(ctx, endpoint)
	if err != nil {
		return r, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, remove(path))
		}
	}()
	if _, err := clientsnapshot.SaveWithVersion(ctx, zap.NewNop(), cfg, path+fresh); err != nil {
		return r, err
	}
	if r, err = look(path + fresh); err != nil {
		return r, err
	}
	r.Version = status.Version
	hash, compacted, err := hashKV(path+fresh, r.Revision)
	if err != nil {
		return r, err
	}
	member, err := client.HashKV(ctx, endpoint, r.Revision)
	switch {
	case err != nil:
		return r, fmt.Errorf("hash of the member's keys at revision %d: %w", r.Revision, err)
	case member.CompactRevision != compacted:
		return r, fmt.Errorf("the member has compacted to revision %d since the snapshot: the hashes cannot be "+
			"compared",
			member.CompactRevision)
	case member.Hash != hash:
		return r, fmt.Errorf("at revision %d the file has the hash %d, and the member %d", r.Revision, hash,
			member.Hash)
	}
	r.HashKV = hash
	return r, keep(path, r)
}

// readTLS reads what a pod has of a Secret.
func readTLS(dir string) (*tls.Config, error) {
	data := map[string][]byte{}
	for _, name := range []string{certs.CertKey, certs.PrivateKey, certs.BundleKey} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return nil, err
		}
		data[name] = text
	}
	return certs.Config(data)
}

// keep gives a verified file its name.
func keep(path string, r report) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path+noted, text, 0o644); err != nil {
		return err
	}
	if err := os.Rename(path+fresh, path); err != nil {
		return err
	}
	return errors.Join(syncFile(path+noted), syncFile(path), syncFile(filepath.Dir(path)))
}

func syncFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}

// remove removes a file and all that lies beside it. What is not there needs no removal.
func remove(path string) error {
	var failed []error
	for _, suffix := range []string{"", fresh, fresh + ".part", copied, noted} {
		if err := os.Remove(path + suffix); err != nil && !errors.Is(err, os.ErrNotExist) {
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}
