# "make" alone lists the targets. Nothing but Go, git and make is needed, and chromium for browser; the first build of
# the control plane takes some minutes.

# What users import. The race detector and the linters for other systems look at these.
LIBRARY  = ./informer/... ./workqueue/... ./reconcile/... ./leaderelection/...
INTERNAL = ./internal/...
EXAMPLES = ./examples/...

# The race detector needs cgo, which go switches off where there is no C compiler. The tests run without it there, and
# say so.
NORACE = $(warning there is no C compiler: the tests run without the race detector)
RACE   = $(if $(filter 1,$(shell go env CGO_ENABLED)),-race,$(NORACE))

# At most two packages at once, but for the examples: the tests of each may run a control plane of their own, half a
# gigabyte with all its parts. Tests that call t.Parallel wait for such a control plane most of the time, so that four
# of them run where there are fewer processors. In examples/etcd each of them has a control plane of its own: four
# there, and two and a half gigabytes with that of the package beside it, however many processors there are. .ci/run has
# a GOTEST that looks again at tests that fail.
GOTEST   = go test
PARALLEL = $(shell n=$$(getconf _NPROCESSORS_ONLN || echo 4); echo $$((n > 4 ? n : 4)))
TEST     = $(GOTEST) -p 2 -parallel $(PARALLEL)

# Servers in memory leave much garbage and hold little: with this the searches take a fifth less processor time.
SPACIOUS = GOGC=400

FUZZTIME ?= 20s

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' Makefile

# With REAL=1, BUILTIN=1 leaves Deployments to Kubernetes' own controller.
.PHONY: demo
demo: ## watch our HPA, Deployment and ReplicaSet controllers work; KEEP=1 stays up; REAL=1 on a real control plane
	@echo 'Starting the demo ...'
	@go run ./internal/demo $(if $(KEEP),-keep) $(if $(REAL),-real) $(if $(BUILTIN),-builtin)

.PHONY: demo-etcd
demo-etcd: ## the etcd operator with real members: faults, upgrade, restore; 3 minutes, Linux, plot: .build/etcd.svg
	@mkdir -p .build
	@cd examples/etcd && go run ./demo -plot ../../.build/etcd.svg

KIND    = go tool -modfile=internal/tools/go.mod kind
CONFIG  = .build/kind.kubeconfig
KUBECTL = kubectl --kubeconfig $(CONFIG)
DELETE  = $(KIND) delete cluster --name thermostat

# The controller runs in a Deployment. The cluster is deleted also if a step fails, unless KEEP=1.
.PHONY: kind-demo
kind-demo: ## the same on a kind cluster; needs docker and kubectl; KEEP=1 keeps the cluster
	docker build -f examples/replicaset/deploy/Dockerfile -t thermostat-replicaset:dev .
	mkdir -p .build
	@set -e; $(if $(KEEP),,trap '$(DELETE) --kubeconfig $(CONFIG)' EXIT; trap 'exit 1' INT TERM;) set -x; \
		$(KIND) create cluster --config examples/replicaset/deploy/kind.yaml --kubeconfig $(CONFIG) --wait 2m; \
		$(KIND) load docker-image thermostat-replicaset:dev --name thermostat; \
		$(KUBECTL) apply -k examples/replicaset/deploy; \
		$(KUBECTL) apply -f examples/replicaset/deploy/bootstrap.yaml; \
		go run ./internal/demo/real -kubeconfig $(CONFIG)
	$(if $(KEEP),@echo 'The cluster stays: $(KUBECTL). To remove it: $(DELETE)')

# Modules of their own that users import as well.
MODULES = informer/ctrlruntime informer/packed reconcile/reconciletest/builtin reconcile/reconciletest/cel \
	reconcile/traces

# go vet checks the types of the tests as well; go list -export compiles them without linking.
.PHONY: systems all-systems
systems: ## vet the library and compile its tests for macOS and Windows
	@set -e; for GOOS in darwin windows; do \
		export GOOS; \
		echo "GOOS=$$GOOS go vet $(LIBRARY)"; \
		go vet $(LIBRARY); \
		go list -test -export $(LIBRARY) > /dev/null; \
	done
all-systems: systems ## the same for all modules that users import; minutes, as cel brings an API server's packages
	@set -e; for GOOS in darwin windows; do \
		export GOOS; \
		for module in $(MODULES); do \
			echo "$$module: GOOS=$$GOOS go vet ./..."; \
			(cd $$module; go vet ./...; go list -test -export ./... > /dev/null); \
		done; \
	done

# These go through hundreds of thousands of cases, or of runs of programs whose like the other tests run, or measure
# memory, and the race detector takes minutes for them. make race-cases and race-searches run them with it, in turns.
CASES = ^(TestAKeyWaitsInEachCaseOfTheModel|TestAKeyWaitsWhateverElseHappens|$(strip \
	)TestCheck.*|TestTwoProgramsThatFight|TestADeadProgramReachesNobody|TestMaskDropsObjects|$(strip \
	)TestNoTwoWorkOnASlice|TestTwoLeaveAtOnce|TestRandomWays|TestEachPlantedBugIsFound|TestChurn|$(strip \
	)TestThroughputGrowsWithTheReplicas|TestARefusedCacheHoldsUpMoves|TestTheServerIsAway|$(strip \
	)TestWhateverBecomesOfAWriteThatIsUnderWayItsKeyWaits|TestAWriteThatGoesWrongAtEveryWrite|$(strip \
	)TestAStormOfConflicts|TestAThousandNamespacesComeAndGo|$(strip \
	)TestBytes|TestRows|TestTenThousandNamesComeAndGo|$(strip \
	)TestEverybodyKnowsTheTruthAfterAStorm|TestEverybodyKnowsTheShare|$(strip \
	)TestAWatchThatCannotBeHadLeadsToAList|TestWhateverAWatchAnswersTheCacheIsNotOld|$(strip \
	)TestEveryMessageIsDecodedAsItDecodesItself|$(strip \
	)TestAProgramThatDoesNothingIsNotBlamedForTheWorld|TestAProgramThatWipesAFieldOfAnother|$(strip \
	)TestTheSameSeedIsTheSameWorld|TestTheWorldShowsMistakes|TestWhatTheProgramSeesOfTheWorldIsTheSame|$(strip \
	)TestWhatTheWorldIsToldToDo|TestAStepMayUseOtherGoroutines|TestAnEventBroadcasterMayBeLeft|$(strip \
	)TestATransportOfTheTest|TestWaitLetsTimePass|TestSeveralProgramsAreDeterministic|$(strip \
	)TestTheBodyOfARequestIsClosed|TestCoverageOfTheOutside|TestGoroutinesMayBeLeft)$$
CASES_IN    = ./informer ./informer/internal/wire/intern ./reconcile ./reconcile/internal/debts
SEARCHES_IN = ./reconcile/reconciletest ./reconcile/sharding

# Two at once, which take about as long as each other: the second waits for real processes most of the time, the first
# computes. Each target is one go test, so that with make --keep-going one that fails keeps none from running.
.PHONY: test first second
test: build ## all tests, those against a real control plane included; .ci/run has the targets that take turns beside it
	@$(MAKE) --no-print-directory -j2 first second
first second:
	@$(MAKE) --no-print-directory IN_TURN=1 $($@)
ifdef IN_TURN
.NOTPARALLEL:
endif
first  = test-library test-cases test-purego test-allocations test-internal
second = test-etcd test-examples test-controlplane test-node $(TESTED:%=test-in-%)

.PHONY: test-library test-cases test-purego test-allocations test-internal test-examples
test-library: build
	$(SPACIOUS) $(TEST) $(RACE) -timeout 25m -skip '$(CASES)' $(LIBRARY)
test-cases:
	$(SPACIOUS) $(TEST) -timeout 25m -run '$(CASES)' $(CASES_IN) $(SEARCHES_IN)
test-purego:
	$(TEST) -tags purego ./informer/internal/wire/...
test-allocations:
	$(TEST) -run NoAllocations ./workqueue
test-internal: build
	$(TEST) -timeout 25m -skip '$(PUBLISHED)' $(INTERNAL)
# Three at once, as these wait for pods, Leases and restarts.
test-examples: build
	$(TEST) -p 3 -timeout 25m $(EXAMPLES)

.PHONY: test-etcd test-controlplane test-node
test-etcd: build
	cd examples/etcd && $(TEST) -parallel 4 -timeout 30m ./...
test-controlplane: build
	cd internal/controlplane && $(TEST) $(RACE) -timeout 5m ./plane ./supervisor
test-node: build
	cd internal/controlplane && $(TEST) ./node ./hpa

# The modules whose tests need no target of their own. A test of internal/controllerruntime reads files of another
# module, whose changes the test cache does not see.
TESTED = $(MODULES) internal/tools internal/controllerruntime internal/upgrades internal/realbugs
.PHONY: $(TESTED:%=test-in-%)
$(TESTED:%=test-in-%): test-in-%: build
	cd $* && $(TEST) -timeout 25m $(FLAGS) $(or $(ONLY),./...)
test-in-internal/tools: ONLY = ./mutate
test-in-internal/controllerruntime: FLAGS = -count=1 -skip '$(TWINS)'

# The operators on controller-runtime pass the same tests as ours, in memory with the others, on a control plane here.
TWINS = ^TestOnACluster$$
.PHONY: test-twins
test-twins: build ## the operators on controller-runtime on a control plane; make release runs it
	cd internal/controllerruntime && $(TEST) -count=1 -run '$(TWINS)' ./cronbackup ./tenant
.PHONY: test-zoo
test-zoo: build ## does Check find the bugs of the zoo, and nothing in what is right? 5 minutes; make release runs it
	cd internal/zoo && $(TEST) -count=1 -timeout 25m ./...
.PHONY: test-long
test-long: build ## random writes on a bad network, all planted bugs of sharding; 5 minutes; make release runs it
	$(TEST) $(RACE) -count=1 -timeout 25m -run '^TestRandomOwnWrites$$' ./reconcile -args -own-writes 2m
	$(SPACIOUS) $(TEST) -count=1 -timeout 10m -run '^TestEachPlantedBugIsFound$$' ./reconcile/sharding \
		-args -all-planted
.PHONY: race-cases race-searches
race-cases: build ## the long tests of caches and writes with the race detector; make release runs them
	$(SPACIOUS) $(TEST) $(RACE) -count=1 -timeout 30m -run '$(CASES)' $(CASES_IN)
race-searches: build ## the long searches of reconciletest and sharding with the race detector; make release runs them
	$(SPACIOUS) $(TEST) $(RACE) -count=1 -timeout 40m -run '$(CASES)' $(SEARCHES_IN)
.PHONY: test-shards
test-shards: build ## the ReplicaSet controller's tests with three replicas at work; make release runs it
	$(TEST) -count=1 -timeout 25m ./examples/replicaset -args -shards

# go test shows the output of a package only when its tests are done. Building first shows the progress.
.PHONY: build
build:
	@go run ./reconcile/reconciletest/cluster/assets > /dev/null

VERSIONS ?= 1.33 1.34 1.35 1.36 1.37
# The packages whose tests use package cluster, and of their tests those in files that do. But for those that compare
# the server in memory, which models the newest version, with a real one.
MODEL = ^(TestConformance|TestRecordAnswers|TestRulesAsOnARealServer|TestRulesThatARealServerDoesNotAccept)$$
CLUSTERED = grep -lE --include='*_test.go' -r 'cluster\.(Shared|New|Start|Assets)\('
ON_CLUSTER = informer leaderelection reconcile examples/hello examples/loop examples/cronbackup examples/tenant

.PHONY: versions
versions: ## the tests against a control plane, and the demo, on each of VERSIONS; builds each at first, 10 minutes
	@set -e; failed=; for version in $(VERSIONS); do \
		export THERMOSTAT_KUBERNETES=$$version; \
		go run ./reconcile/reconciletest/cluster/assets > /dev/null; \
		for dir in $$($(CLUSTERED) $(ON_CLUSTER) | xargs -n1 dirname | sort -u); do \
			tests=$$($(CLUSTERED) $$dir/*_test.go | xargs sed -nE 's/^func (Test[A-Z][A-Za-z0-9_]*).*/\1/p' | \
				grep -v '^TestMain$$' | paste -sd '|' -); \
			echo "$$version: go test -run '^($$tests)$$' ./$$dir"; \
			(cd $$dir && go test -count=1 -timeout 15m -skip '$(MODEL)' -run "^($$tests)$$" .) || \
				failed="$$failed $$version:$$dir"; \
		done; \
		echo "$$version: the demo"; go run ./internal/demo -real || failed="$$failed $$version:demo"; \
	done; \
	if [ -n "$$failed" ]; then echo "failed:$$failed"; exit 1; fi

.PHONY: race
race: build ## all tests with the race detector, but builtin's, for which Kubernetes would be compiled anew
	$(TEST) -race -timeout 30m $(LIBRARY) $(INTERNAL) $(EXAMPLES)
	cd internal/tools && $(TEST) -race ./...
	cd informer/packed && $(TEST) -race ./...
	cd informer/ctrlruntime && $(TEST) -race ./...
	cd reconcile/reconciletest/cel && $(TEST) -race ./...
	cd reconcile/traces && $(TEST) -race ./...
	cd internal/controllerruntime && $(TEST) -race ./...
	cd examples/etcd && $(TEST) -race -timeout 30m ./...
	cd internal/controlplane && $(TEST) -race -timeout 5m ./plane ./supervisor ./node

# The rest needs Go only, so this is not a part of make test; .ci/run installs chromium for it.
.PHONY: browser
browser: ## the pages of inspect and plan in chromium, which must be installed; pictures in .build/browser; 1 minute
	cd internal/browser && go test -count=1 -timeout 10m ./... $(if $(UPDATE),-args -update)

.PHONY: zoo
zoo: ## published bugs of real controllers, found by Check on three libraries: 20 minutes
	cd internal/zoo && GOGC=400 go test -v -timeout 120m -run 'TestTables|TestPlanted|TestCost' . -args -tables

# The operators are compiled at first, from the modules of others: 10 minutes of processor time each.
.PHONY: upgrades
upgrades: build ## plans of upgrades of operators of others, beside the upgrades; in internal/upgrades/RESULTS.md
	cd internal/upgrades && nice go run . -save RESULTS.md

.PHONY: realbugs
realbugs: ## published bugs of others, looked for in their releases; in internal/realbugs/RESULTS.md
	cd internal/realbugs && nice go run . -save RESULTS.md

.PHONY: fuzz
fuzz: ## each fuzz target for FUZZTIME (20s)
	@set -e; for package in $$(go list ./...); do \
		listed=$$(go test -list '^Fuzz' $$package); \
		for target in $$(echo "$$listed" | grep '^Fuzz'); do \
			echo "go test -run '^$$' -fuzz '^$$target$$' -fuzztime $(FUZZTIME) $$package"; \
			go test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) $$package; \
		done; \
	done

MUTANTS  ?= 300
SEED     ?= 1
PACKAGES ?= workqueue reconcile reconcile/internal/family reconcile/objects leaderelection informer
# Packages whose tests are run too, with commas between them: what is in reconcile/internal is mostly tested through
# the API of reconcile, so PACKAGES=reconcile/internal/keys needs TESTS_OF=reconcile.
TESTS_OF ?=

.PHONY: mutate
mutate: ## would the tests notice a bug? an hour; report in .build/mutants; PACKAGES=workqueue MUTANTS=300 SEED=1
	cd internal/tools && go run ./mutate -dir ../.. -n $(MUTANTS) -seed $(SEED) -tests "$(TESTS_OF)" $(ARGS) $(PACKAGES)

.PHONY: soak
soak: build ## the long runs: chaos for as long as it takes, every test 20 times; hours
	THERMOSTAT_SOAK=1 $(TEST) -race -count=20 -timeout 12h $(LIBRARY) $(INTERNAL) $(EXAMPLES)

# The parts replicaset, deployment, autoscaler and controllermanager run only if BENCH names them: they need a real
# control plane, and minutes; the last compiles a kube-controller-manager of its own at first.
CHAOS ?= 10m
SEEDS ?= 1 2 3

.PHONY: soak-etcd
soak-etcd: ## faults for CHAOS (10m) with each of SEEDS (1 2 3) on real etcd members, under load; 35 minutes
	cd examples/etcd && for seed in $(SEEDS); do \
		go test -v -run TestChaos -timeout 24h . -args -chaos $(CHAOS) -seed $$seed || exit 1; \
	done

.PHONY: soak-quorum
soak-quorum: ## quorum lost for good: each pair of three real etcd members, each triple of five; 20 minutes
	cd examples/etcd && go test -v -run TestEachQuorumLost -timeout 2h . -args -every-loss

STORED ?= 10000

.PHONY: soak-webhooks
soak-webhooks: build ## STORED (10000) objects of an old version read through webhooks that are renewed; 20 minutes
	go test -count=1 -v -run TestMigration -timeout 2h ./examples/cronbackup -args -stored $(STORED)

.PHONY: bench
bench: $(if $(filter replicaset deployment autoscaler controllermanager,$(BENCH)),build)
bench: ## compare with client-go and controller-runtime: 15 minutes, in RESULTS.txt; BENCH="queue store": these parts
	cd internal/bench && go run . -plot growth.svg $(if $(BENCH),$(BENCH),-save RESULTS.txt)

.PHONY: lint
lint: all-systems ## gofmt, 120 columns, go vet (also as on macOS and Windows), staticcheck
	@echo 'gofmt -l .'; unformatted=$$(gofmt -l .); test -z "$$unformatted" || { echo "$$unformatted"; exit 1; }
	go test -count=1 -run 'Columns|Shape' ./internal/house
	go vet ./...
	go tool -modfile=internal/tools/go.mod staticcheck ./...
	cd internal/controlplane && go vet ./... && go tool -modfile=../tools/go.mod staticcheck ./plane ./supervisor ./node
	cd internal/tools && go vet ./... && go tool staticcheck ./...
	cd internal/bench && go vet ./... && go tool -modfile=../tools/go.mod staticcheck ./...
	cd internal/controllerruntime && go vet ./... && go tool -modfile=../tools/go.mod staticcheck ./...
	cd internal/browser && go vet ./... && go tool -modfile=../tools/go.mod staticcheck ./...
	cd internal/zoo && go vet ./... && go tool -modfile=../tools/go.mod staticcheck ./...
	cd internal/upgrades && go vet ./... && go tool -modfile=../tools/go.mod staticcheck ./...
	cd internal/realbugs && go vet ./... && go tool -modfile=../tools/go.mod staticcheck ./...
	cd examples/etcd && go vet ./... && go tool -modfile=../../internal/tools/go.mod staticcheck ./...
	cd informer/ctrlruntime && go vet ./... && go tool -modfile=../../internal/tools/go.mod staticcheck ./...
	cd informer/packed && go vet ./... && go tool -modfile=../../internal/tools/go.mod staticcheck ./...
	cd reconcile/reconciletest/builtin && go vet ./... && \
		go tool -modfile=../../../internal/tools/go.mod staticcheck ./...
	cd reconcile/reconciletest/cel && go vet ./... && go tool -modfile=../../../internal/tools/go.mod staticcheck ./...
	cd reconcile/traces && go vet ./... && go tool -modfile=../../internal/tools/go.mod staticcheck ./...

# What users import, by the oldest client-go and each minor version after it. Replace directives select it, as in the
# go.mod of a user who has to stay on it. Not run with the oldest: the tests of package reconciletest, which models the
# API of go.mod's version; those that run client-go's own informers in virtual time, in which these hang; a test that
# asks go list, which does not know of the other go.mod; and the tests of client-go's fake clientset, whose lists have
# no resourceVersion before 0.36.
CLIENT_GO_OLDEST  = v0.34.0
CLIENT_GO_BETWEEN = v0.35.0 v0.36.0
CLIENT_GO_NEWEST  = v0.37
OLD_TAG  = client_go_0_35
OLD_SKIP = ^(TestWireLeavesAListerWatcherAlone|TestWireInRandomHistories|TestWireIsClientGo|$(strip \
	)TestTheHelpersLinkNoKindsOfTheirOwn|TestWorksWithTheFakeClientset|$(strip \
	)TestWorksWithAFakeClientsetThatHoldsNothing|TestAFakeClientsetIsNotAskedToStream|$(strip \
	)TestAStateMayKeepItsVersion|TestTheFakesOfClientGoAreKnown|TestManyNamesOfAClientset|$(strip \
	)TestAReconcilerWithAFakeClientset|TestRows)$$

.PHONY: client-go
client-go: build
client-go: ## build with client-go 0.34 to 0.37, run the tests with the oldest; minutes
	@set -e; dir=$$(mktemp -d); trap 'rm -rf "$$dir"' EXIT; \
	with() { \
		version=$$(go list -m -f '{{.Version}}' k8s.io/client-go@$$1); verb=$$2; shift 2; \
		cp go.mod go.sum "$$dir"; \
		for module in api apimachinery client-go component-helpers; do \
			go mod edit -replace=k8s.io/$$module=k8s.io/$$module@$$version "$$dir/go.mod"; \
		done; \
		echo "go $$verb with client-go $$version"; \
		go $$verb -mod=mod -modfile="$$dir/go.mod" "$$@"; \
	}; \
	for version in $(CLIENT_GO_OLDEST) $(CLIENT_GO_BETWEEN); do \
		with $$version build $$(case $$version in v0.34.*|v0.35.*) echo -tags $(OLD_TAG);; esac) $(LIBRARY); \
	done; \
	with $(CLIENT_GO_NEWEST) vet $(LIBRARY); \
	with $(CLIENT_GO_OLDEST) vet -tags $(OLD_TAG) $(LIBRARY); \
	with $(CLIENT_GO_OLDEST) test -tags $(OLD_TAG) -p 2 -timeout 15m -skip '$(OLD_SKIP)' \
		$$(go list $(LIBRARY) | grep -v /reconciletest)

VULNDB ?= https://vuln.go.dev

.PHONY: vulncheck vulndb
vulncheck: ## known vulnerabilities in what is called; needs vuln.go.dev, or VULNDB=file://$PWD/.build/vulndb
	@modfile=$(CURDIR)/internal/tools/go.mod; status=0; for dir in $(TREES); do \
		echo "$$dir: govulncheck ./..."; \
		(cd $$dir && go tool -modfile=$$modfile govulncheck -db $(VULNDB) ./...) || status=$$?; \
	done; \
	if [ $$status -ne 0 ]; then \
		echo 'make vulncheck: vulnerable code is called, or not all was checked (that needs $(VULNDB)); see above'; \
	fi; \
	exit $$status
vulndb: ## a copy of the database of vulnerabilities in .build/vulndb, from the Go module golang.org/x/vulndb
	@rm -rf .build/vulndb; mkdir -p .build/vulndb
	@cd internal/tools && version=$$(go list -m -f '{{.Version}}' golang.org/x/vulndb@latest) && \
		go run golang.org/x/vulndb/cmd/indexdb@$$version -out ../../.build/vulndb \
		-vulns "$$(go mod download -json golang.org/x/vulndb@$$version | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')/data/osv"
TREES = . $(MODULES) examples/etcd internal/controlplane internal/bench internal/controllerruntime internal/zoo \
	internal/upgrades internal/realbugs internal/browser internal/tools

# The modules as users get them from a proxy, which are compiled anew for this.
PUBLISHED = ^(TestGoGet|TestTheTemplateIsCopied)$$
.PHONY: test-release
test-release: build ## does make release refuse what is broken? can users build what it publishes? minutes
	cd internal/tools && $(TEST) ./release
	$(TEST) -timeout 25m -run '$(PUBLISHED)' ./internal/house

# OFFLINE=1 releases without the database of vulnerabilities, and says so. CHECK=1 tags nothing.
.PHONY: release prepare-release
release: ## check everything and tag VERSION=v0.1.0; see .github/RELEASING.md
	$(RELEASE) -db $(VULNDB) $(if $(OFFLINE),-offline) -check
	$(MAKE) --no-print-directory lint test test-twins test-zoo test-long race-cases race-searches test-shards \
		test-release client-go versions
	$(RELEASE) -db $(VULNDB) $(if $(OFFLINE),-offline) $(if $(CHECK),-check)
prepare-release: ## write VERSION=v0.1.0 into the nested modules
	$(RELEASE) -prepare
.PHONY: api
api: ## what has changed since the last version that can break users, and that the changelog does not name
	cd internal/tools && go run ./release -dir ../.. -api
RELEASE = cd internal/tools && go run ./release -dir ../.. -version '$(VERSION)'

.PHONY: controlplane
controlplane: ## a control plane for kubectl, without a ReplicaSet controller; Ctrl-C ends it; ARGS="--kubeconfig PATH"
	@programs=$$(go run ./reconcile/reconciletest/cluster/assets) && \
		exec $$programs/controlplane up --controllers='*,-replicaset-controller' $(ARGS)

.PHONY: clean
clean: ## remove what was built
	rm -rf .build
