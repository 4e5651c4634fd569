// Command snapshot runs in the pods that the operator makes: it writes a snapshot of a cluster to a file, verifies it,
// removes it, and makes a member's disk of it. In the pods of a schedule it asks the operator for a backup.
//
//	snapshot save --endpoints=http://10.0.0.7:2379 --dir=/backups --file=a.db
//	snapshot verify --dir=/backups --file=a.db
//	snapshot remove --dir=/backups --file=a.db
//	snapshot restore --dir=/backups --file=a.db --name=a-1 --peer-url=http://10.0.0.9:2380 --token=t --data-dir=/data
//	snapshot request --claim=backups --account=/var/run/secrets/kubernetes.io/serviceaccount
//	snapshot forget --account=/var/run/secrets/kubernetes.io/serviceaccount
//
// save and verify print what the file has as JSON, and write it to the file --message, which is the termination message
// of the pod. Errors go there as well. All commands may be repeated.
//
// # Reading order
//
// main.go: the commands. save.go: from a member to a file. verify.go: what is in a file. restore.go: from a file to a
// disk. request.go: what the pods of a schedule do.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/pflag"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// options are the flags of all commands.
type options struct {
	endpoints       []string
	dir, file, hash string
	name, peerURL   string // of the member that is restored
	token, dataDir  string
	claim, account  string
	message, tls    string
	timeout         time.Duration
}

// path is the file of the backup.
func (o options) path() string { return filepath.Join(o.dir, o.file) }

func (o options) check(command string) error {
	needs := map[string]string{}
	switch command {
	case "save", "verify", "remove", "restore":
		needs["dir"], needs["file"] = o.dir, o.file
	case "request":
		needs["claim"] = o.claim
	}
	if command == "restore" {
		needs["name"], needs["peer-url"], needs["data-dir"], needs["token"] = o.name, o.peerURL, o.dataDir, o.token
	}
	for flag, value := range needs {
		if value == "" {
			return fmt.Errorf("%s needs the flag --%s", command, flag)
		}
	}
	switch {
	case command == "save" && len(o.endpoints) == 0:
		return errors.New("save needs the flag --endpoints")
	case o.file != "" && o.file != filepath.Base(o.file):
		return fmt.Errorf("--file=%s: it is a name in --dir, without a folder", o.file)
	}
	return nil
}

func main() {
	var o options
	pflag.StringSliceVar(&o.endpoints, "endpoints", nil, "URLs of members; one after the other is asked")
	pflag.StringVar(&o.tls, "tls", "", "folder with tls.crt, tls.key and ca.crt, to reach the members; empty: no TLS")
	pflag.StringVar(&o.dir, "dir", "", "folder of the files")
	pflag.StringVar(&o.file, "file", "", "name of the file")
	pflag.StringVar(&o.hash, "sha256", "", "what the file's hash must be; empty: only that at its end counts")
	pflag.StringVar(&o.name, "name", "", "of the member")
	pflag.StringVar(&o.peerURL, "peer-url", "", "of the member")
	pflag.StringVar(&o.token, "token", "", "of the new cluster: another one than any cluster before has had")
	pflag.StringVar(&o.dataDir, "data-dir", "", "folder that is made; if it exists nothing is done")
	pflag.StringVar(&o.claim, "claim", "", "claim that the EtcdBackup names")
	pflag.StringVar(&o.account, "account", "", "folder with the token and the ca.crt of a service account")
	pflag.StringVar(&o.message, "message", "", "file for the result or the error")
	pflag.DurationVar(&o.timeout, "timeout", 30*time.Minute, "after which the command fails")
	pflag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	if err := o.run(ctx, pflag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		if o.message != "" {
			_ = os.WriteFile(o.message, []byte(err.Error()), 0o644)
		}
		os.Exit(1)
	}
}

func (o options) run(ctx context.Context, args []string) error {
	if len(args) != 1 {
		return errors.New("give one command: save, verify, remove, restore, request or forget")
	}
	if err := o.check(args[0]); err != nil {
		return err
	}
	switch args[0] {
	case "save":
		return o.tell(save(ctx, o))
	case "verify":
		return o.tell(verify(o.path()))
	case "remove":
		return remove(o.path())
	case "restore":
		return restore(o)
	case "request":
		return request(ctx, o)
	case "forget":
		return forget(ctx, o)
	}
	return fmt.Errorf("unknown command %q: give save, verify, remove, restore, request or forget", args[0])
}

// tell prints what a file has.
func (o options) tell(r report, err error) error {
	if err != nil {
		return err
	}
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	fmt.Println(string(text))
	if o.message == "" {
		return nil
	}
	return os.WriteFile(o.message, text, 0o644)
}

// logger writes what etcd's packages warn of. Some of them end the process after an error that they only log.
func logger() *zap.Logger {
	return zap.New(zapcore.NewCore(zapcore.NewConsoleEncoder(zap.NewProductionEncoderConfig()),
		zapcore.Lock(os.Stderr), zapcore.WarnLevel))
}
