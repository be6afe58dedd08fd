#!/usr/bin/env bash
# Tries the gate: `trapline check` must pass changes that cannot matter to a figure, and find one more instruction.
# usage: scripts/gate-trials.sh DIST BASELINE
#
# BASELINE has been taken of the programs in DIST, in as many layouts as are to be tried (`trapline baseline --layouts 5`).
# Changes are made in copies of the built programs, or in a temporary worktree of the last commit, whose programs have to be
# those of DIST if nothing is changed. Machines are booted for each check, and no snapshot is created.
# Prints a line a change. Exit status: 0 if all results are as expected.
# Functions are called by their names.
# shellcheck disable=SC2317
set -eu

here=$(cd "$(dirname "$0")/.." && pwd)
dist=$(cd "$1" && pwd)
kept=$(realpath "$2")
vmm=trapline-vmm image=trapline-image
declare -A main=([$vmm]=vmm/machine/src/main.rs [$image]=guest/kernel/src/main.rs)

scratch=$(mktemp -d)
parts=$scratch/parts baseline=$scratch/baseline.json source=$scratch/source unexpected=0
remove_scratch() {
    git -C "$here" worktree remove --force "$source" 2> /dev/null || true
    rm -rf "$scratch"
}
trap remove_scratch EXIT
trap 'exit 130' INT TERM
git -C "$here" worktree add --quiet --detach "$source" HEAD
export TRAPLINE_EXACT_BOOTS=1 TRAPLINE_PARTS=$parts XDG_DATA_HOME=$scratch TRIAL=

none() { :; }
each() { # CHANGE ARGUMENT...: a change of VMM and image
    local program
    for program in $vmm $image; do "$1" "$program" "${@:2}"; done
}

section() { # PROGRAM BYTES: a section that is not loaded
    head -c "$2" /dev/zero > "$scratch/section"
    objcopy --add-section .trial="$scratch/section" "$parts/$1"
}
rename_symbols() { objcopy --prefix-symbols=trial_ "$parts/$1"; }
remove_symbols() { strip --strip-all "$parts/$1"; }

# For trapline itself, too.
move_parts() {
    TRIAL=$(printf 'x%.0s' {1..4000})
    TRAPLINE_PARTS=$scratch/$(printf 'a-long-name-%.0s' {1..15})
    mv "$parts" "$TRAPLINE_PARTS"
}
rename_image() {
    mv "$parts/$image" "$scratch/unikernel-of-another-name.elf"
    options=(--image "$scratch/unikernel-of-another-name.elf")
}
# More memory of the guest: check measures the configurations that a baseline names, which are keys at the second level.
more_memory() {
    sed -i 's|^    "\([^":]*\)": {|    "\1:memory=136M": {|; s|^    "\([^":]*\):layout|    "\1:memory=136M,layout|' "$baseline"
}

# Assembly of a program's first object, before all of its functions.
assembly() { # PROGRAM TEXT
    echo "core::arch::global_asm!(\".pushsection $2; .popsection\");" >> "${main[$1]}"
}
code() { # PROGRAM BYTES: a function that is never called
    built "$1" assembly "$1" ".text.trial, \\\"axR\\\", @progbits; .skip $2, 0x90"
}
data() { # PROGRAM BYTES
    built "$1" assembly "$1" ".data.trial, \\\"awR\\\", @progbits; .skip $2, 1"
}
edit() { # PROGRAM FILE SED
    built "$1" sed -i "$3" "$2"
}
longer_messages() {
    edit $vmm vmm/machine/src/settings/help.txt '1s/$/ (a trial of the gate)/'
    edit $image guest/workloads/src/exits.rs 's/the scratch register did not keep/trial of the gate: &/'
}
rustc_option() { # PROGRAM OPTION
    further=$2 built "$1" true
}
built() { # PROGRAM COMMAND...
    local program=$1
    shift
    (
        cd "$source"
        git checkout --quiet .
        "$@"
        if [ "$program" = $image ]; then
            scripts/freestanding.sh trapline-kernel "$parts/$image"
        else
            remap="'--remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=cargo', '--remap-path-prefix=$PWD=.'"
            cargo build --quiet --profile guest --bin "$program" \
                --config "target.x86_64-unknown-linux-gnu.rustflags=[$remap${further:+, $further}]"
            cp "target/x86_64-unknown-linux-gnu/guest/$program" "$parts"
        fi
        if [ "$*" != none ] && cmp --quiet "$dist/$program" "$parts/$program"; then
            echo "gate-trials: $program is the same after: $*" >&2
            exit 1
        fi
    )
}

# Checks with a change. The expected result is `same`, or the operation that has another figure.
trial() { # EXPECTED NAME CHANGE...
    local expected=$1 name=$2 output status=0 changed
    shift 2
    rm -rf "$parts"
    cp -r "$dist" "$parts"
    cp "$kept" "$baseline"
    options=() TRAPLINE_PARTS=$parts TRIAL=
    "$@"
    output=$("$dist/trapline" check --quiet --fresh --baseline "$baseline" "${options[@]}") || status=$?
    case $status in
        0) changed=same ;;
        1) changed=$(grep -E '^[a-z-]+/[a-z0-9-]+ +[0-9]' <<< "$output" | cut -d' ' -f1 | sort -u | xargs) ;;
        *) changed="status $status" ;;
    esac
    printf '%-50s %s\n' "$name" "$changed"
    if [[ " $changed " != *" $expected "* ]]; then
        unexpected=$((unexpected + 1))
        printf '    expected: %s\n%s\n' "$expected" "$output"
    fi
}

trial same 'nothing' none
nop='unsafe { core::arch::asm!("nop") };'
trial exits/port-out 'one instruction more (VMM)' edit $vmm vmm/monitor/src/devices/io_bus.rs \
    "s/self.serial.write(register, data as u8, shell);/$nop &/"
trial exits/cpuid 'one instruction more (image)' edit $image guest/workloads/src/exits.rs \
    "s/differences |= identify::identify(argument) ^ expected/$nop &/"
trial same 'section of 1,000 bytes' each section 1000
trial same 'section of 40,000 bytes' each section 40000
trial same 'other names of symbols' each rename_symbols
trial same 'no symbols' each remove_symbols
trial same 'built elsewhere' each built none
trial same '1,237 bytes of unused code' each code 1237
trial same '20,011 bytes of unused code' each code 20011
trial same '5,000 bytes of unused data' each data 5000
trial same 'longer messages' longer_messages
trial same 'functions sorted by name (VMM)' rustc_option $vmm "'-Clink-arg=-Wl,--sort-section=name'"
trial same 'parts elsewhere, larger environment' move_parts
trial same 'another file name (image)' rename_image
trial same 'more memory of the guest' more_memory
exit $((unexpected > 0))
