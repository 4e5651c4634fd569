package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.etcd.io/etcd/server/v3/lease"
	"go.etcd.io/etcd/server/v3/storage/backend"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
)

// copied is the suffix of the copy that is hashed, since etcd's storage writes to what it opens.
const copied = ".copy"

// verify compares a file with its report.
func verify(path string) (want report, err error) {
	text, err := os.ReadFile(path + noted)
	if err != nil {
		return want, err
	}
	if err := json.Unmarshal(text, &want); err != nil {
		return want, fmt.Errorf("%s: %w", path+noted, err)
	}
	is, err := look(path)
	if err != nil {
		return is, err
	}
	is.Version = want.Version
	if is.HashKV, _, err = hashKV(path, is.Revision); err != nil {
		return is, err
	}
	if is != want {
		return is, fmt.Errorf("the file is not what it was: %+v, and it was %+v", is, want)
	}
	return is, nil
}

// look returns what a file has, without its version and the hash of its keys. It checks the hash at the end, and the
// pages of the database.
func look(path string) (r report, err error) {
	if r.SHA256, r.Size, err = checksum(path); err != nil {
		return r, err
	}
	status, err := snapshot.NewV3(logger()).Status(path)
	if err != nil {
		return r, err
	}
	r.Revision, r.Keys = status.Revision, status.TotalKey
	return r, nil
}

// checksum returns the hash of the database, which is the whole file but the hash at its end. They must be the same.
func checksum(path string) (hash string, size int64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return "", 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", 0, err
	}
	if info.Size()%512 != sha256.Size {
		return "", 0, fmt.Errorf("%s has %d bytes: it is cut off, or no snapshot", path, info.Size())
	}
	h := sha256.New()
	if _, err := io.CopyN(h, f, info.Size()-sha256.Size); err != nil {
		return "", 0, err
	}
	end, err := io.ReadAll(f)
	if err != nil {
		return "", 0, err
	}
	if !bytes.Equal(end, h.Sum(nil)) {
		return "", 0, fmt.Errorf("%s is damaged: its database does not have the hash at its end", path)
	}
	return hex.EncodeToString(end), info.Size(), nil
}

// hashKV returns etcd's hash of all keys at a revision, and the revision that the database is compacted to.
func hashKV(path string, revision int64) (hash uint32, compacted int64, err error) {
	defer func() { err = errors.Join(err, os.RemoveAll(path+copied)) }()
	if err := copyDatabase(path, path+copied); err != nil {
		return 0, 0, err
	}
	log := logger()
	b := backend.NewDefaultBackend(log, path+copied)
	defer b.Close()
	store := mvcc.NewStore(log, b, &lease.FakeLessor{}, mvcc.StoreConfig{})
	defer store.Close()
	h, _, err := mvcc.NewHashStorage(log, store).HashByRev(revision)
	return h.Hash, h.CompactRevision, err
}

// copyDatabase copies a file without the hash at its end.
func copyDatabase(from, to string) error {
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	t, err := os.OpenFile(to, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.CopyN(t, f, info.Size()-sha256.Size)
	return errors.Join(err, t.Close())
}
