// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The program that the tests of bad programs and bad archives damage.

#include <stdio.h>

int main(int argc, char **argv)
{
    printf("%s %d\n", argv[0], argc);
    return 0;
}
