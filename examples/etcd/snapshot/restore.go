package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"go.etcd.io/etcd/etcdutl/v3/snapshot"
)

// part is the suffix of a data folder that is not complete.
const part = ".part"

// restore makes the data folder of the first member of a new cluster. The folder gets its name when it is complete; if
// it has it, the member may have started, and nothing is done.
func restore(o options) error {
	if _, err := os.Stat(o.dataDir); err == nil {
		return nil
	}
	hash, _, err := checksum(o.path())
	switch {
	case err != nil:
		return err
	case o.hash != "" && o.hash != hash:
		return fmt.Errorf("%s is another file than that of the backup: its hash is %s, and not %s", o.path(), hash,
			o.hash)
	}
	if err := os.RemoveAll(o.dataDir + part); err != nil {
		return err
	}
	if err := snapshot.NewV3(logger()).Restore(snapshot.RestoreConfig{
		SnapshotPath: o.path(), Name: o.name, OutputDataDir: o.dataDir + part, PeerURLs: []string{o.peerURL},
		InitialCluster: o.name + "=" + o.peerURL, InitialClusterToken: o.token,
	}); err != nil {
		return errors.Join(err, os.RemoveAll(o.dataDir+part))
	}
	if err := os.Rename(o.dataDir+part, o.dataDir); err != nil {
		return err
	}
	return syncFile(filepath.Dir(o.dataDir))
}
