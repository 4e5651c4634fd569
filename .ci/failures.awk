# Prints what failed of the output of go test: of each test the first lines, without what the program under test logs,
# then the packages. A long output is often cut at its beginning, where the test is named.
/^[IWEF][0-9][0-9][0-9][0-9] [0-9:.]+ / { next }
/^[ \t]*--- FAIL|^panic: |^fatal error: |WARNING: DATA RACE/ { left = 24 }
/^(FAIL|ok|---|===|PASS)/ && !/^--- FAIL/ { left = 0 }
left > 0 { left--; print substr($0, 1, 300) }
/^FAIL[ \t]|^make.*\*\*\*|: (error|undefined):?/ { packages[++n] = $0 }
END { print "failed:"; for (i = 1; i <= n; i++) print packages[i] }
